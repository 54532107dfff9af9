package shutdown

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/cmd/numalet-lab/logind"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/podtest"
)

// node has pods that run until they are told to end, and then as long as the test wants.
type node struct {
	t         *testing.T
	bus       *logind.Bus
	dir       string
	dropIns   string
	announced *Announced
	changed   chan struct{}
	registry  metrics.KubeRegistry

	mu       sync.Mutex // guards the fields below
	pods     map[types.UID]*v1.Pod
	clings   bool                       // pods that were told to end stay
	ends     func(*v1.Pod)              // of each; nil: nothing
	reported func(context.Context) bool // nil: everybody knows of all ends
	log      []string
}

// start runs a manager with these waves, of seconds, and a pod for each.
func start(t *testing.T, b *logind.Bus, waves ...Wave) *node {
	t.Helper()
	n := startWith(t, Logind{DropIns: filepath.Join(t.TempDir(), "etc/logind.conf.d")}, waves...)
	n.bus = b
	return n
}

// startWith runs a manager with a logind that has its drop-ins there.
func startWith(t *testing.T, l Logind, waves ...Wave) *node {
	t.Helper()
	n := &node{
		t: t, dropIns: l.DropIns, dir: t.TempDir(),
		announced: new(Announced), changed: make(chan struct{}, 1),
		registry: metrics.NewKubeRegistry(), pods: map[types.UID]*v1.Pod{},
	}
	for i, w := range waves {
		p := podtest.New(fmt.Sprint("pod", i), podtest.Priority(w.Priority))
		n.pods[p.UID] = p
	}
	m, err := New(Config{
		Waves: waves, Logind: l, Announced: n.announced, End: n.end,
		PodFacts: PodFacts{Pods: n.list, Left: n.left, Changed: n.changed, Synced: n.knows,
			Grace: func(*v1.Pod) time.Duration { return time.Minute }},
		Tell: func(eventType, reason, message string) {
			n.says(eventType + " " + reason + " " + message)
		},
		Dir: n.dir, Registry: n.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return n
}

func (n *node) list() (out []*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (n *node) left(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[uid] != nil
}

func (n *node) end(p *v1.Pod, grace time.Duration) {
	n.says(fmt.Sprintf("%s within %v", p.Name, grace))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ends != nil {
		n.ends(p)
	}
	if !n.clings {
		delete(n.pods, p.UID)
		await.Wake(n.changed)
	}
}

func (n *node) knows(ctx context.Context) bool {
	n.mu.Lock()
	reported := n.reported
	n.mu.Unlock()
	return reported == nil || reported(ctx)
}

func (n *node) cling() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clings = true
}

func (n *node) gone() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.pods)
	await.Wake(n.changed)
}

func (n *node) says(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, what)
}

func (n *node) said() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.log, "; ")
}

func (n *node) recorded() (t times) {
	n.t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.dir, FileName))
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil && !os.IsNotExist(err) {
		n.t.Error(err)
	}
	return t
}

func (n *node) eventually(what string, is func() bool) {
	n.t.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.t.Fatalf("not yet: %s; said %s", what, n.said())
}

func (n *node) inhibits(locks int) {
	n.t.Helper()
	n.eventually(fmt.Sprint(locks, " inhibitors"), func() bool { return n.bus.Locks() == locks })
}

func (n *node) says1(want string) {
	n.t.Helper()
	n.eventually("said "+want, func() bool { return n.said() == want })
}

// system makes a system bus on which logind waits for 30 s.
func system(t *testing.T) *logind.Bus {
	t.Helper()
	b, err := logind.Listen(filepath.Join(t.TempDir(), "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", b.Address())
	t.Cleanup(func() { b.Close() })
	b.Delay(30*time.Second, nil)
	return b
}

const began, cancelled = "Normal Shutdown Shutdown manager detected shutdown event",
	"Normal Shutdown Shutdown manager detected shutdown cancellation"

var two = []Wave{{0, 20 * time.Second}, {1000, 10 * time.Second}}

// The pods of a wave end when those of lower waves are gone; then the machine may go down. If it
// does not, the node takes pods again, and is ready for the next time.
func TestShutdownAndCancellation(t *testing.T) {
	b := system(t)
	n := start(t, b, two...)
	n.inhibits(1)
	if n.announced.Now() || n.said() != "" || !n.recorded().Start.IsZero() {
		t.Errorf("before a shutdown: %t, %s, %v", n.announced.Now(), n.said(), n.recorded())
	}
	n.cling()
	b.Prepare(true)
	n.says1(began + "; pod0 within 20s")
	n.eventually("the start is recorded", func() bool { return !n.recorded().Start.IsZero() })
	if !n.announced.Now() || b.Locks() != 1 || !n.recorded().End.IsZero() {
		t.Errorf("announced %t, %d inhibitors, %v", n.announced.Now(), b.Locks(), n.recorded())
	}
	n.mu.Lock()
	delete(n.pods, "pod0")
	n.mu.Unlock()
	await.Wake(n.changed)
	n.says1(began + "; pod0 within 20s; pod1 within 10s")
	if b.Locks() != 1 {
		t.Error("the machine may go down before the last pod")
	}
	n.gone()
	n.inhibits(0)
	if at := n.recorded(); at.End.Before(at.Start) || at.End.IsZero() {
		t.Errorf("released before the end was recorded: %v", at)
	}
	if got := gauge(t, n.registry, "kubelet_graceful_shutdown_end_time_seconds"); got <= 0 {
		t.Errorf("the metric of the end is %v", got)
	}
	b.Prepare(false)
	n.inhibits(1)
	n.says1(began + "; pod0 within 20s; pod1 within 10s; " + cancelled)
	if n.announced.Now() {
		t.Error("the node takes no pods after the cancellation")
	}
	b.Prepare(true)
	n.inhibits(0)
}

func gauge(t *testing.T, r metrics.KubeRegistry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// The machine goes down when others know how the pods have ended, or could not be told in time.
func TestOthersAreReported(t *testing.T) {
	for _, known := range []bool{true, false} {
		b := system(t)
		n := start(t, b, two...)
		n.inhibits(1)
		asked, answer := make(chan time.Duration, 1), make(chan bool)
		n.mu.Lock()
		n.reported = func(ctx context.Context) bool {
			until, _ := ctx.Deadline()
			asked <- time.Until(until)
			return <-answer
		}
		n.mu.Unlock()
		b.Prepare(true)
		if within := <-asked; within > tellWithin {
			t.Errorf("others have %v", within)
		}
		if at := n.recorded(); b.Locks() != 1 || at.End.IsZero() {
			t.Errorf("before others know there are %d inhibitors, and recorded is %v", b.Locks(), at)
		}
		answer <- known
		n.inhibits(0)
	}
}

// What an earlier run recorded is told by the metrics.
func TestLastShutdownIsReported(t *testing.T) {
	r := metrics.NewKubeRegistry()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(
		`{"startTime":"2030-01-01T00:00:00.5Z","endTime":"0001-01-01T00:00:00Z"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	record, err := newRecorder(Config{Dir: dir, Registry: r})
	if err != nil {
		t.Fatal(err)
	}
	record.load(t.Context())
	if start, end := gauge(t, r, "kubelet_graceful_shutdown_start_time_seconds"),
		gauge(t, r, "kubelet_graceful_shutdown_end_time_seconds"); start != 1893456000 || end != 0 {
		t.Errorf("start %v, end %v", start, end)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(`{`), 0o644); err != nil {
		t.Fatal(err)
	}
	record.load(t.Context()) // it is moved aside
	if _, err := os.Stat(filepath.Join(dir, FileName)); !os.IsNotExist(err) {
		t.Errorf("the file that cannot be read is still there: %v", err)
	}
}

// Without waves the bus is left alone.
func TestOffIsOff(t *testing.T) {
	b := system(t)
	calls := b.Counts().Calls
	m, err := New(Config{})
	if err == nil {
		err = m.Run(t.Context())
	}
	if err != nil || b.Counts().Calls != calls {
		t.Errorf("%d calls, %v", b.Counts().Calls, err)
	}
}

// logind is told to wait as long as all waves take. If it does not, it is inhibited all the same,
// and the waves are shorter.
func TestLogindWaitsLess(t *testing.T) {
	b := system(t)
	b.Delay(5*time.Second, nil)
	n := start(t, b, two...)
	n.inhibits(1)
	raw, err := os.ReadFile(filepath.Join(n.dropIns, "99-kubelet.conf"))
	if err != nil || !strings.HasSuffix(string(raw), "\n[Login]\nInhibitDelayMaxSec=30\n") ||
		b.Counts().Reloads == 0 {
		t.Errorf("the drop-in is %q, %d reloads, %v", raw, b.Counts().Reloads, err)
	}
	n.cling()
	b.Prepare(true)
	n.says1(fmt.Sprint(began, "; pod0 within ", 5*time.Second*2/3))
}

// The configuration that is reloaded counts, which takes a while.
func TestLogindWaitsLonger(t *testing.T) {
	b := system(t)
	reads := 0
	b.Delay(5*time.Second, func() time.Duration {
		reads++
		return time.Duration(30*reads) * time.Second
	})
	n := start(t, b, two...)
	n.inhibits(1)
	if b.Counts().Reloads != 1 {
		t.Errorf("%d reloads", b.Counts().Reloads)
	}
	n.cling()
	b.Prepare(true)
	n.says1(began + "; pod0 within 20s")
}

// The bus goes and comes: the inhibitor stays, and is taken anew once.
func TestBusDisappears(t *testing.T) {
	b := system(t)
	n := start(t, b, two...)
	n.inhibits(1)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Locks() != 1 {
		t.Error("the inhibitor is gone with the bus")
	}
	b.PrepareUnheard(true) // nobody hears of it until the bus is back
	if err := b.Open(); err != nil {
		t.Fatal(err)
	}
	n.inhibits(0)
	n.says1(began + "; pod0 within 20s; pod1 within 10s")
	b.Restart()
	n.inhibits(1)
	n.says1(began + "; pod0 within 20s; pod1 within 10s; " + cancelled)
}

// A shutdown that has begun goes on when the bus disappears.
func TestBusDisappearsInShutdown(t *testing.T) {
	b := system(t)
	n := start(t, b, two...)
	n.inhibits(1)
	n.cling()
	b.Prepare(true)
	n.says1(began + "; pod0 within 20s")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	n.gone()
	n.inhibits(0)
	if err := b.Open(); err != nil {
		t.Fatal(err)
	}
}

// A bus that hangs is given up and tried again; one that refuses likewise.
func TestBusHangsAndRefuses(t *testing.T) {
	b := system(t)
	b.Fail(logind.Faults{Silent: true})
	n := start(t, b, two...)
	n.eventually("the silent bus is given up", func() bool { return b.Counts().Greetings > 1 })
	for _, method := range []string{"Get", "Inhibit"} {
		b.Fail(logind.Faults{Refused: []string{method}})
		calls := b.Counts().Refused
		n.eventually(method+" is refused", func() bool { return b.Counts().Refused > calls })
		if b.Locks() != 0 {
			t.Errorf("inhibited although %s is refused", method)
		}
	}
	b.Fail(logind.Faults{})
	n.inhibits(1)
	b.Prepare(true)
	n.inhibits(0)
}

// logind may restart, and others may say what they like.
func TestLogindRestarts(t *testing.T) {
	b := system(t)
	n := start(t, b, two...)
	n.inhibits(1)
	calls := b.Counts().Inhibitors
	b.Pretend()
	b.Restart()
	n.eventually("an inhibitor of the new logind", func() bool { return b.Counts().Inhibitors > calls })
	n.inhibits(1)
	if n.said() != "" {
		t.Errorf("said %s", n.said())
	}
	n.cling()
	b.Prepare(true)
	n.says1(began + "; pod0 within 20s")
	b.Restart() // the new one does not prepare for anything
	n.says1(began + "; pod0 within 20s; " + cancelled)
	n.inhibits(1)
}
