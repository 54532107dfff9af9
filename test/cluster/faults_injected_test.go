package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/faults"
)

// accident is a set of faults at the same time. Each function returns when its fault is over.
type accident struct {
	what  string
	parts []func() error
	// reachable: other clients can write to the API server meanwhile.
	reachable bool
}

// kindOfAccident draws an accident of one kind. direct: others lose the API server, too.
type kindOfAccident struct {
	name   string
	plan   func(*faulty) accident
	direct bool
}

// accidents are all kinds; others recover slowly from the last ones.
var accidents = []kindOfAccident{
	{"agent", (*faulty).agentKilled, false},
	{"answers", (*faulty).badAnswers, false},
	{"watches", (*faulty).badWatches, false},
	{"runtime", (*faulty).runtimeGone, false},
	{"etcd", (*faulty).etcdGone, true},
	{"apiserver frozen", (*faulty).apiServerFrozen, true},
	{"apiserver killed", (*faulty).apiServerKilled, true},
	{"together", (*faulty).together, true},
}

// lasting draws a duration: up to two seconds, and in long runs a minute in one round of 40.
func (s *faulty) lasting() time.Duration {
	if s.random.IntN(40) == 0 && os.Getenv(roundsEnv) != "" {
		return time.Minute
	}
	return s.shortly()
}

func (s *faulty) shortly() time.Duration {
	return time.Duration(s.random.Int64N(int64(2 * time.Second)))
}

// agentKilled: the agent is started again at once or later, and may be killed while it starts.
func (s *faulty) agentKilled() accident {
	pauses := []time.Duration{s.moment()}
	for range s.random.IntN(3) {
		pauses = append(pauses, s.moment(), 2*s.moment())
	}
	return accident{
		what: fmt.Sprintf("the agent is killed, pauses %v", pauses), reachable: true,
		parts: []func() error{func() error {
			for i, pause := range pauses {
				if i%2 == 0 {
					s.node.Kill()
				}
				time.Sleep(pause)
				if i%2 == 0 {
					s.node.StartOnly()
				}
			}
			return nil
		}},
	}
}

func (s *faulty) apiServerKilled() accident {
	pause := s.lasting()
	return accident{
		what:  fmt.Sprintf("the API server is killed for %v", pause),
		parts: []func() error{func() error { return s.restart("kube-apiserver", pause) }},
	}
}

// restart kills a server for a while.
func (s *faulty) restart(name string, pause time.Duration) error {
	server, err := s.c.Server(name)
	if err != nil {
		return err
	}
	server.Kill()
	time.Sleep(pause)
	return server.Start()
}

// restartOthers restarts the servers that have lost the API server several times: they back off for
// so long that later tests would wait.
func (s *faulty) restartOthers() {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := s.restart(name, 0); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *faulty) apiServerFrozen() accident {
	pause := s.lasting()
	return accident{
		what:  fmt.Sprintf("the API server is frozen for %v", pause),
		parts: []func() error{func() error { return s.freeze("kube-apiserver", pause) }},
	}
}

func (s *faulty) freeze(name string, pause time.Duration) error {
	server, err := s.c.Server(name)
	if err != nil {
		return err
	}
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(pause)
	return server.Signal(syscall.SIGCONT)
}

func (s *faulty) etcdGone() accident {
	pause := s.lasting()
	if s.random.IntN(2) == 0 {
		return accident{
			what:  fmt.Sprintf("etcd is frozen for %v", pause),
			parts: []func() error{func() error { return s.freeze("etcd", pause) }},
		}
	}
	return accident{
		what:  fmt.Sprintf("etcd is killed for %v", pause),
		parts: []func() error{func() error { return s.restart("etcd", pause) }},
	}
}

// trouble lets requests of the agent fail for a while.
func (s *faulty) trouble(t faults.Trouble, lasts time.Duration, cut bool) accident {
	return accident{
		what:      fmt.Sprintf("for %v %s, connections are cut: %v", lasts, t, cut),
		reachable: true,
		parts: []func() error{func() error {
			s.proxy.Set(t)
			if cut {
				s.proxy.Cut()
			}
			time.Sleep(lasts)
			s.proxy.Set(faults.Trouble{})
			return nil
		}},
	}
}

// badAnswers: the API server refuses, fails, or carries out a request and reports a failure.
func (s *faulty) badAnswers() accident {
	codes := []int{
		http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusConflict,
		http.StatusGone, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}
	t := faults.Trouble{
		Share: 0.3 + 0.7*s.random.Float64(), Answer: codes[s.random.IntN(len(codes))],
		Late: s.random.IntN(2) == 0, Which: faults.Which(s.random.IntN(3)),
	}
	return s.trouble(t, s.shortly(), s.random.IntN(2) == 0)
}

// badWatches: watches are cut, slow, interrupted, too old, or get nothing.
func (s *faulty) badWatches() accident {
	t := [...]faults.Trouble{
		{},
		{Slow: time.Duration(1+s.random.IntN(1000)) * time.Millisecond},
		{Lasts: time.Duration(1+s.random.IntN(300)) * time.Millisecond},
		{Answer: http.StatusGone},
		{Hang: true},
	}[s.random.IntN(5)]
	t.Share, t.Which = 0.3+0.7*s.random.Float64(), faults.Watches
	lasts := s.shortly()
	if t.Hang {
		t.Which = faults.All
		lasts = s.lasting()
	}
	return s.trouble(t, lasts, t.Hang || s.random.IntN(3) > 0)
}

// runtimeGone: containerd is killed; or the simulated runtime does not answer, refuses, carries out
// a call without an answer, reports other conditions, or sends no events.
func (s *faulty) runtimeGone() accident {
	if s.daemon != nil {
		return s.containerdKilled()
	}
	pause := s.lasting()
	if s.random.IntN(4) == 0 {
		return s.sandboxDies()
	}
	plan := []struct {
		what  string
		begin func(*crisim.Server) error
	}{
		{"is gone", s.fails(crisim.Fault{Method: "*", Error: "no such socket", Code: "Unavailable"})},
		{"hangs", s.fails(crisim.Fault{Method: "*", Hang: true})},
		{"loses answers", s.loses},
		{"is not ready", func(r *crisim.Server) error {
			r.SetReady(crisim.Ready{Message: "this is a test"})
			return nil
		}},
		{"says nothing", func(r *crisim.Server) error { return r.SetEvents(crisim.EventsSilent) }},
		{"has no events", func(r *crisim.Server) error { return r.SetEvents(crisim.EventsUnimplemented) }},
	}[s.random.IntN(6)]
	return accident{
		what: fmt.Sprintf("the runtime %s for %v", plan.what, pause), reachable: true,
		parts: []func() error{func() error {
			r := s.node.Runtime
			if err := plan.begin(r); err != nil {
				return err
			}
			time.Sleep(pause)
			r.ClearFaults()
			r.SetReady(crisim.Ready{Runtime: true, Network: true})
			return r.SetEvents(crisim.EventsOn)
		}},
	}
}

func (*faulty) fails(f crisim.Fault) func(*crisim.Server) error {
	return func(r *crisim.Server) error {
		err := r.SetFault(f)
		r.DropEvents()
		return err
	}
}

// loses makes calls that change something take effect without an answer.
func (*faulty) loses(r *crisim.Server) error {
	for _, method := range crisim.Methods() {
		if strings.HasPrefix(method, "List") || strings.HasSuffix(method, "Status") {
			continue
		}
		err := r.SetFault(crisim.Fault{
			Method: method, Error: "connection reset", Code: "Unavailable", After: true,
			Delay: metav1.Duration{Duration: 10 * time.Millisecond},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sandboxDies: a running pod must be started again.
func (s *faulty) sandboxDies() accident {
	names := slices.DeleteFunc(s.wants.names(), func(name string) bool {
		o := s.wants.of[name]
		return o.gone || o.kind == job || o.kind == deployment
	})
	if len(names) == 0 {
		return accident{what: "nothing happens", reachable: true}
	}
	o := s.wants.of[names[s.random.IntN(len(names))]]
	o.touched = true
	pod := o.name
	if o.kind == static {
		pod += "-" + s.node.Name
	}
	return accident{
		what: "the sandbox of " + pod + " dies", reachable: true,
		parts: []func() error{func() error {
			_ = s.node.Runtime.KillSandbox(s.c.Namespace + "/" + pod) // it may have none at the moment
			return nil
		}},
	}
}

func (s *faulty) containerdKilled() accident {
	pause := s.lasting()
	return accident{
		what: fmt.Sprintf("containerd is killed for %v", pause), reachable: true,
		parts: []func() error{func() error {
			s.daemon.Kill()
			time.Sleep(pause)
			return s.daemon.Restart(context.Background())
		}},
	}
}

// anyOnNode draws an accident of the agent or of its runtime, or of both.
func (s *faulty) anyOnNode() accident {
	return s.some([]func(*faulty) accident{
		(*faulty).agentKilled, (*faulty).runtimeGone, (*faulty).badWatches,
	}, 1+s.random.IntN(2))
}

// together draws several accidents of different kinds at once.
func (s *faulty) together() accident {
	return s.some([]func(*faulty) accident{
		(*faulty).agentKilled, (*faulty).apiServerKilled, (*faulty).badAnswers, (*faulty).etcdGone,
		(*faulty).runtimeGone,
	}, 2+s.random.IntN(4))
}

func (s *faulty) some(plans []func(*faulty) accident, count int) (all accident) {
	all.reachable = true
	s.random.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
	var what []string
	for _, plan := range plans[:count] {
		a := plan(s)
		what = append(what, a.what)
		all.parts = append(all.parts, a.parts...)
		all.reachable = all.reachable && a.reachable
	}
	all.what = strings.Join(what, "; ")
	return all
}
