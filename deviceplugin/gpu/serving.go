package gpu

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
	"github.com/numalet/numalet/deviceplugin/serve"
)

// serving has a server for each resource that there is.
type serving struct {
	cfg   Config
	ctx   context.Context // of Run
	group *errgroup.Group
	all   map[string]*served
	spec  []string // names in the CDI spec that was written
}

type served struct {
	server *server
	stop   context.CancelFunc
	done   chan struct{}
	empty  bool // there was nothing when it was published last
}

func newServing(cfg Config) *serving { return &serving{cfg: cfg, all: map[string]*served{}} }

func (s *serving) begin(ctx context.Context, group *errgroup.Group) { s.ctx, s.group = ctx, group }

// publish offers what there is. A resource that is gone is offered without devices, so that nobody
// counts on it any more, and the next time no longer.
func (s *serving) publish(all offers, links prefer.Links) error {
	// Runtimes must find in the spec what the kubelet is offered.
	err := s.writeSpec(all)
	for resource, o := range all.resources {
		if s.all[resource] == nil {
			s.start(resource, o, links)
		}
		s.all[resource].server.publish(o, links)
		s.all[resource].empty = false
	}
	for resource, one := range s.all {
		if _, offered := all.resources[resource]; offered {
			continue
		}
		if one.empty {
			one.stop()
			<-one.done
			delete(s.all, resource)
			s.cfg.Log("%s: there are no such devices any more", resource)
			continue
		}
		one.server.publish(offer{}, nil)
		one.empty = true
	}
	return err
}

func (s *serving) start(resource string, o offer, links prefer.Links) {
	one := &served{server: newServer(resource, s.cfg.Settings, s.cfg.Log),
		done: make(chan struct{})}
	one.server.publish(o, links)
	ctx, stop := context.WithCancel(s.ctx)
	one.stop = stop
	plugin := serve.Server{
		Resource: resource, Dir: s.cfg.Dir, Options: options(), Answers: one.server, Log: s.cfg.Log,
		Socket: "numalet-" + strings.ReplaceAll(resource, "/", "-") + ".sock",
	}
	s.all[resource] = one
	s.group.Go(func() error {
		defer close(one.done)
		return plugin.Run(ctx)
	})
}

func (s *serving) writeSpec(all offers) error {
	if !s.cfg.Settings.usesCDI() {
		return nil
	}
	var units []*unit
	var names []string
	seen := map[string]bool{}
	for _, o := range all.resources {
		for _, d := range o.devices {
			if !seen[d.unit.id] {
				units, names = append(units, d.unit), append(names, d.unit.id)
			}
			seen[d.unit.id] = true
		}
	}
	if sameSet(names, s.spec) {
		return nil
	}
	if err := writeCDI(s.cfg.Settings.CDIDir, cdiSpec(units, s.cfg.Settings)); err != nil {
		return err
	}
	s.spec = names
	return nil
}

func sameSet(a, b []string) bool {
	in := make(map[string]bool, len(a))
	for _, one := range a {
		in[one] = true
	}
	for _, one := range b {
		if !in[one] {
			return false
		}
	}
	return len(a) == len(b)
}

// end stops the servers. The CDI spec stays: a container that has its devices can be started again
// while the plugin is being replaced.
func (s *serving) end() {
	for _, one := range s.all {
		one.stop()
	}
}
