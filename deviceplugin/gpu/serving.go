package gpu

import (
	"context"
	"reflect"

	"golang.org/x/sync/errgroup"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// serving runs a server for each offered resource.
type serving struct {
	cfg   Config
	ctx   context.Context // of Run
	group *errgroup.Group
	all   map[string]*served
	specs map[string]*specs.Spec // CDI specs as last written, by class
}

type served struct {
	server *server
	stop   context.CancelFunc
	done   chan struct{}
	empty  bool // last published without devices
}

func newServing(cfg Config) *serving {
	return &serving{cfg: cfg, all: map[string]*served{}, specs: map[string]*specs.Spec{}}
}

// publish offers what there is. A resource that is gone is first offered without devices, so that the
// node no longer counts any, and the next time no longer offered.
func (s *serving) publish(all offers, snapshot Snapshot) error {
	// Before runtimes see devices, the spec must have them.
	err := s.writeSpecs(all, snapshot.Files)
	links := snapshot.Links
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
	ctx, stop := context.WithCancel(s.ctx)
	one := &served{server: newServer(resource, s.cfg), stop: stop, done: make(chan struct{})}
	one.server.publish(o, links)
	s.all[resource] = one
	s.group.Go(func() error {
		defer close(one.done)
		return one.server.Run(ctx)
	})
}

// writeSpecs writes the CDI specs that changed since they were last written.
func (s *serving) writeSpecs(all offers, files *specs.ContainerEdits) error {
	set := s.cfg.Settings
	if !set.usesCDI() {
		return nil
	}
	var units []*unit
	seen := map[string]bool{}
	for _, o := range all.resources {
		for _, d := range o.devices {
			if !seen[d.unit.id] {
				units = append(units, d.unit)
			}
			seen[d.unit.id] = true
		}
	}
	now := map[string]*specs.Spec{"gpu": cdiSpec(units, set, files)}
	for _, e := range set.Extras {
		now[string(e)] = e.spec(set.DevRoot)
	}
	for class, spec := range now {
		if reflect.DeepEqual(s.specs[class], spec) {
			continue
		}
		if err := writeCDI(set.CDI.Dir, class, spec); err != nil {
			return err
		}
		s.specs[class] = spec
	}
	return nil
}

// end stops the servers. The CDI specs stay: a container that has such devices can restart while
// the plugin is being replaced.
func (s *serving) end() {
	for _, one := range s.all {
		one.stop()
	}
}
