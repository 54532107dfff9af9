package crisim

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/await"
)

// Fault disturbs matching calls. It delays, hangs and fails them, in this order, as far as these
// are set. Several faults add up.
type Fault struct {
	// Method is the name of an RPC, "StartContainer"; empty or "*" matches all.
	Method string `json:"method,omitempty"`
	// Pod and Container restrict the fault to calls about them, by name.
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`

	Delay metav1.Duration `json:"delay,omitzero"`
	// Hang lasts until the caller gives up or the faults are cleared.
	Hang bool `json:"hang,omitempty"`
	// Error is the message to fail with, Code the name of its gRPC code; the default is Unknown.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
	// After lets the call take effect first: only the answer is lost.
	After bool `json:"after,omitempty"`
	// Count limits the fault to that many calls; 0: until the faults are cleared.
	Count int `json:"count,omitempty"`
}

// validate finds mistakes in a fault before it is set.
func (f Fault) validate() error {
	methods := Methods()
	if f.Method != "" && f.Method != "*" && !slices.Contains(methods, f.Method) {
		return fmt.Errorf("fault: method %q is not a CRI v1 call; one of %s, or *",
			f.Method, strings.Join(methods, " "))
	}
	_, err := f.code()
	return err
}

func (f Fault) code() (codes.Code, error) {
	if f.Code == "" {
		return codes.Unknown, nil
	}
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if strings.EqualFold(c.String(), f.Code) {
			return c, nil
		}
	}
	return codes.Unknown, fmt.Errorf("fault: code %q is not a gRPC code such as Unavailable",
		f.Code)
}

func (f Fault) matches(method string, about Subject) bool {
	return (f.Method == "" || f.Method == "*" || f.Method == method) &&
		(f.Pod == "" || f.Pod == about.Pod) &&
		(f.Container == "" || f.Container == about.Container)
}

// faults holds the faults in force.
type faults struct {
	mu      sync.Mutex
	set     []Fault
	cleared chan struct{} // closed and replaced by clear
}

func newFaults() *faults { return &faults{cleared: make(chan struct{})} }

func (f *faults) add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set = append(f.set, fault)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set = nil
	close(f.cleared)
	f.cleared = make(chan struct{})
}

// take returns the faults that hit this call, and counts it against them. The channel ends their
// hanging.
func (f *faults) take(method string, about Subject) ([]Fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hit, keep []Fault
	for _, fault := range f.set {
		if fault.matches(method, about) {
			hit = append(hit, fault)
			if fault.Count == 1 {
				continue
			}
			fault.Count = max(fault.Count-1, 0)
		}
		keep = append(keep, fault)
	}
	f.set = keep
	return hit, f.cleared
}

// suffer applies the faults of one phase, before or after the call.
func suffer(ctx context.Context, hit []Fault, after bool, cleared <-chan struct{}) error {
	for _, f := range hit {
		if f.After != after {
			continue
		}
		if err := pause(ctx, f.Delay.Duration); err != nil {
			return err
		}
		if f.Hang && !await.On(ctx, cleared) {
			return status.FromContextError(ctx.Err()).Err()
		}
		if f.Error != "" {
			code, _ := f.code() // validated when the fault was set
			return status.Error(code, f.Error)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d > 0 && !await.For(ctx, d) {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// calls is between the clients and the runtime: it writes the journal and applies faults.
type calls struct {
	cfg     Config
	store   *store
	faults  *faults
	journal *journal
}

// unary wraps every call: journal, the runtime's own delay, faults, the call, faults after it.
func (c *calls) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	method := path.Base(info.FullMethod)
	about := c.subject(req)
	ticket := c.journal.begin(method, about, cpusOf(req))
	resp, err := c.call(ctx, method, about, func() (any, error) { return handler(ctx, req) })
	c.journal.end(ticket, made(resp), err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// call returns the response, for the journal, even if a fault loses it.
func (c *calls) call(
	ctx context.Context, method string, about Subject, handler func() (any, error),
) (any, error) {
	if method == "PullImage" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(c.cfg.PullTimeout, 5*time.Minute))
		defer cancel()
	}
	if err := pause(ctx, c.delay(method)); err != nil {
		return nil, err
	}
	hit, cleared := c.faults.take(method, about)
	if err := suffer(ctx, hit, false, cleared); err != nil {
		return nil, err
	}
	resp, err := handler()
	if err != nil {
		return nil, err
	}
	return resp, suffer(ctx, hit, true, cleared)
}

// delay returns how long the runtime itself takes for a call.
func (c *calls) delay(method string) time.Duration {
	if d, ok := c.cfg.Delays[method]; ok {
		return d
	}
	if changes(method) {
		return c.cfg.Delays["*"]
	}
	return 0
}

func (c *calls) stream(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	method := path.Base(info.FullMethod)
	c.journal.begin(method, Subject{}, "")
	_, err := c.call(ss.Context(), method, Subject{}, func() (any, error) {
		return nil, handler(srv, ss)
	})
	return err
}
