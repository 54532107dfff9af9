package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/internal/podtest"
)

const (
	gpus = "gpu.example.com"
	nics = "nic.example.com"
)

// node is a node in memory: an API server's claims, drivers that note their calls, pods.
type node struct {
	*Manager
	dir    string
	bootID string
	stop   func()

	mu     sync.Mutex
	claims map[string]*resourcev1.ResourceClaim // by name
	reads  int
	log    []string
	usable sets.Set[string]
	fail   map[string]error // by driver, or by driver and claim's name
	hang   map[string]chan struct{}
	active sets.Set[types.UID]
	runs   []*v1.Pod // as the runtime has them when the agent starts
	cdi    []string  // where drivers write specs; nil: they write none, and none are looked for
	looks  []string  // where the runtime looks for these instead
	// unanswered: the API server cannot be reached.
	unanswered bool
	known      bool
	reported   []string
	change     chan struct{}
	booted     time.Time
	// reach replaces what calls come to; nil: they succeed but for fail and hang.
	reach func(ctx context.Context, what, driver string, claims []dra.Claim) error
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: t.TempDir(), bootID: "boot-1", claims: map[string]*resourcev1.ResourceClaim{},
		usable: sets.New(gpus, nics), fail: map[string]error{}, hang: map[string]chan struct{}{},
		active: sets.New[types.UID](), known: true, change: make(chan struct{}, 1)}
	n.start(t)
	return n
}

// start opens the records, and runs; restart does so as a new agent.
func (n *node) start(t *testing.T) {
	t.Helper()
	var err error
	n.Manager, err = New(Config{
		Dir: n.dir, BootID: n.bootID, Get: n.get, Drivers: drivers{n}, DriversChanged: n.change,
		Booted: n.booted, CDIDirs: n.cdiDirs(), Ends: Ends{
			Changed:    func() { n.note("changed") },
			Unprepared: func(uid types.UID) { n.note("settled %s", uid) },
			Tell: func(o runtime.Object, _, reason, message string) {
				ref, _ := o.(*v1.ObjectReference)
				n.set(func() { n.reported = append(n.reported, ref.Kind+" "+ref.Name+" "+reason+": "+message) })
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx, n.pods) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
}

func (n *node) restart(t *testing.T) {
	t.Helper()
	n.stop()
	n.start(t)
}

func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) note(format string, args ...any) {
	n.set(func() { n.log = append(n.log, fmt.Sprintf(format, args...)) })
}

func (n *node) pods() (Pods, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Pods{n.active.Clone(), n.runs}, n.known
}

func (n *node) get(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	if n.unanswered {
		return nil, errFake
	}
	if c := n.claims[name]; c != nil && c.Namespace == namespace {
		return c, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
}

// drivers are the node's.
type drivers struct{ *node }

func (n drivers) Usable(driver string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.usable.Has(driver)
}

func (n drivers) Prepare(ctx context.Context, driver string, claims []dra.Claim) (
	map[types.UID]dra.Answer, error) {
	err := n.called(ctx, "prepare", driver, claims)
	out := map[types.UID]dra.Answer{}
	for _, c := range claims {
		out[c.UID] = dra.Answer{Devices: []dra.Device{{Requests: []string{"r"}, Pool: "n",
			Name: "dev-" + c.Name, CDI: []string{driver + "/dev=" + string(c.UID)}}}}
		n.set(func() {
			if wrong := n.fail[driver+" "+c.Name]; wrong != nil {
				out[c.UID] = dra.Answer{Err: wrong}
				return
			}
			if wrong := n.writeSpec(driver, c.UID); wrong != nil && err == nil {
				err = wrong
			}
		})
	}
	return out, err
}

func (n *node) cdiDirs() []string {
	if n.looks != nil {
		return n.looks
	}
	return n.cdi
}

// writeSpec has the runtime find the device of a claim.
func (n *node) writeSpec(driver string, claim types.UID) error {
	if len(n.cdi) == 0 {
		return nil
	}
	return serve.WriteSpec(n.cdi[0], driver+"-"+string(claim), &cdispecs.Spec{Kind: driver + "/dev",
		Devices: []cdispecs.Device{{Name: string(claim), ContainerEdits: cdispecs.ContainerEdits{
			Env: []string{"CLAIM=" + string(claim)}}}}})
}

func (n drivers) Unprepare(ctx context.Context, driver string, claims []dra.Claim) (
	map[types.UID]error, error) {
	err := n.called(ctx, "unprepare", driver, claims)
	out := map[types.UID]error{}
	for _, c := range claims {
		n.set(func() { out[c.UID] = n.fail[driver+" "+c.Name] })
	}
	return out, err
}

func (n *node) called(ctx context.Context, what, driver string, claims []dra.Claim) error {
	var names []string
	for _, c := range claims {
		names = append(names, c.Name)
	}
	n.note("%s %s %s", what, strings.TrimSuffix(driver, ".example.com"), strings.Join(names, ","))
	if n.reach != nil {
		return n.reach(ctx, what, driver, claims)
	}
	n.mu.Lock()
	hang, err := n.hang[driver], n.fail[driver]
	n.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// expect compares the calls and news since the last look, in any order of the same moment.
func (n *node) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.log)
	slices.Sort(want)
	if !slices.Equal(n.log, want) {
		t.Errorf("got  %q\nwant %q", n.log, want)
	}
	n.log = nil
}

// claim makes an allocated claim with devices of the drivers, reserved for the pods.
func (n *node) claim(name string, drivers []string, pods ...*v1.Pod) {
	c := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status:     resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}},
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			reference(p))
	}
	for _, d := range drivers {
		results := &c.Status.Allocation.Devices.Results
		*results = append(*results, resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: d,
			Pool: "n", Device: "dev-" + name})
	}
	n.set(func() { n.claims[name] = c })
}

func reference(p *v1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID}
}

// pod makes a pod that uses claims of these names, in its one container.
func (n *node) pod(name string, claims ...string) *v1.Pod {
	p := podtest.New("ns/"+name, podtest.UID("uid-"+name), podtest.Containers("main"))
	for _, c := range claims {
		podtest.Claims("my-" + c + "=" + c)(p)
	}
	n.set(func() { n.active.Insert(p.UID) })
	return p
}

// stages is the state of all records.
func (n *node) stages() string {
	var out []string
	all := n.book.records()
	keys := slices.SortedFunc(maps.Keys(all), func(a, b types.NamespacedName) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, key := range keys {
		r := all[key]
		var users, drivers []string
		for _, u := range r.Users {
			text := strings.TrimPrefix(string(u.UID), "uid-")
			if u.Leaving {
				text += "!"
			}
			users = append(users, text)
		}
		for _, d := range r.Drivers {
			drivers = append(drivers, strings.TrimSuffix(d.Name, ".example.com")+"="+string(d.Stage))
		}
		out = append(out, fmt.Sprintf("%s[%s] %s", key.Name, strings.Join(users, " "),
			strings.Join(drivers, " ")))
	}
	return strings.Join(out, "; ")
}

func (n *node) expectStages(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := n.stages(); got != want {
		t.Errorf("records are %q, want %q", got, want)
	}
}

var errFake = errors.New("the driver is out of order")

// claimsAgain has the claims of a pod made again, as an API server that is back has them.
func (n *node) claimsAgain(pod *v1.Pod) {
	n.set(func() { n.claims = map[string]*resourcev1.ResourceClaim{} })
	for _, c := range pod.Spec.ResourceClaims {
		n.claim(*c.ResourceClaimName, []string{gpus}, pod)
	}
}
