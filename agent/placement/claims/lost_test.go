package claims

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/deviceplugin/dra"
)

// twoPods has p and q run with the claim a, and p with b. The drivers were told.
func twoPods(t *testing.T, n *node) (p, q *v1.Pod) {
	t.Helper()
	p, q = n.pod("p", "a", "b"), n.pod("q", "a")
	n.claim("a", []string{gpus, nics}, p, q)
	n.claim("b", []string{gpus}, p)
	if err := errors.Join(n.Prepare(t.Context(), p), n.Prepare(t.Context(), q)); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "prepare gpu a,b", "prepare nic a")
	n.expectStages(t, "a[p q] gpu=Prepared nic=Prepared; b[p] gpu=Prepared")
	n.runs = []*v1.Pod{p, q}
	return p, q
}

// endBoth has the second pod of a shared claim end, and then the first one.
func (n *node) endBoth(t *testing.T, p, q *v1.Pod) {
	t.Helper()
	n.Release(q.UID)
	n.expect(t, "settled uid-q")
	n.expectStages(t, "a[p] gpu=Prepared nic=Prepared; b[p] gpu=Prepared")
	n.Release(p.UID)
	n.expect(t, "unprepare gpu a,b", "unprepare nic a", "settled uid-p")
	n.expectStages(t, "")
}

// expectCDI has the container of a pod made.
func (n *node) expectCDI(t *testing.T, pod *v1.Pod, want int) {
	t.Helper()
	if ids, err := n.CDI(t.Context(), pod, "main"); err != nil || len(ids) != want {
		t.Errorf("pod %s gets %q, %v, want %d", pod.Name, ids, err, want)
	}
}

// Whatever is lost of our record, at whatever length it is cut: the kubelet's file, which this agent
// wrote, knows what running pods use, and no driver is called before they end.
func TestRecordLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := twoPods(t, n)
		n.stop()
		whole, theirs := n.read(t, FileName), []byte(n.read(t, KubeletFile))
		damages := map[string]func(path string) error{
			"missing": os.Remove,
			"folder": func(path string) error {
				return errors.Join(os.Remove(path), os.MkdirAll(path+"/x", 0o700))
			},
			"flipped": func(path string) error {
				return os.WriteFile(path, []byte(strings.Replace(whole, "uid-p", "uid-x", 1)), 0o600)
			},
		}
		for cut := range len(whole) {
			if cut%97 == 0 || whole[cut] == '\n' || cut > 0 && whole[cut-1] == '\n' {
				damages[fmt.Sprintf("cut at %d", cut)] = func(path string) error {
					return os.WriteFile(path, []byte(whole[:cut]), 0o600)
				}
			}
		}
		for name, damage := range damages {
			path := filepath.Join(n.dir, FileName)
			n.write(t, KubeletFile, theirs)
			n.write(t, FileName, []byte(whole))
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // the names of files that are moved aside have the time
			n.Manager = n.reopen(t)
			for _, pod := range []*v1.Pod{p, q} {
				if uses, ok := n.book.recorded(pod); !ok || len(uses) != len(pod.Spec.ResourceClaims) {
					t.Errorf("%s: pod %s has %+v, %t", name, pod.Name, uses, ok)
				}
			}
			n.expectCDI(t, p, 3)
			if got := n.stages(); got != "a[p q] gpu=Prepared nic=Prepared; b[p] gpu=Prepared" {
				t.Errorf("%s: %s", name, got)
			}
			if !strings.HasPrefix(name, "cut at") &&
				!strings.Contains(n.Recovered(), "are taken over from "+KubeletFile) {
				t.Errorf("%s: told is %q", name, n.Recovered())
			}
			if again := n.reopen(t); again.Recovered() != "" {
				t.Errorf("%s: told twice: %s", name, again.Recovered())
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		n.expect(t)
		n.write(t, KubeletFile, theirs)
		n.start(t)
		synctest.Wait()
		if got := n.book.get(n.book.of(p.UID)[0].key()); len(got.Devices) != 2 || got.Users[0].Name != "p" {
			t.Errorf("what the kubelet's file does not have is lost: %+v", got)
		}
		n.endBoth(t, p, q)
	})
}

// reopen opens the records as a new agent that does not run yet.
func (n *node) reopen(t *testing.T) *Manager {
	t.Helper()
	m, err := New(Config{Dir: n.dir, BootID: n.bootID, Get: n.get, Drivers: drivers{n}})
	if err != nil && !isUnusable(err) {
		t.Fatal(err)
	}
	return m
}

// With both files lost, running pods are recorded as the API server has their claims before a driver
// unprepares anything: not while the API server does not answer, nor by a pod that used a claim
// beside them. Before a container is made, drivers say again with what.
func TestBothRecordsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := twoPods(t, n)
		n.stop()
		for _, name := range []string{FileName, KubeletFile} {
			if err := os.Remove(filepath.Join(n.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		claims := n.claims
		n.unanswered = true
		n.start(t)
		r := n.pod("r", "a")
		n.set(func() {
			claims["a"].Status.ReservedFor = append(claims["a"].Status.ReservedFor,
				reference(r))
		})
		time.Sleep(time.Minute)
		n.Release(q.UID) // it ended meanwhile
		n.expect(t)
		n.set(func() { n.unanswered = false })
		time.Sleep(time.Minute)
		n.set(func() { n.log = nil }) // q may have been a user for a moment
		n.expectStages(t, "a[p] gpu=Preparing nic=Preparing; b[p] gpu=Preparing")
		if got := n.Prepared(p.UID); len(got) != 2 || len(got[0].Devices) != 2 ||
			got[0].Devices[0].Name != "dev-a" {
			t.Errorf("pod p has %+v", got)
		}
		if list, err := decodeKubelet([]byte(n.read(t, KubeletFile))); err != nil ||
			len(list.list) != 2 || len(list.list[0].DriverState[gpus].Devices) != 0 {
			t.Errorf("exported are %+v, %v", list, err)
		}
		if err := n.Prepare(t.Context(), r); err != nil {
			t.Error(err)
		}
		n.expect(t, "prepare gpu a", "prepare nic a")
		n.Release(r.UID)
		n.expect(t, "settled uid-r")
		n.expectCDI(t, p, 3)
		n.expect(t, "prepare gpu b")
		n.expectStages(t, "a[p] gpu=Prepared nic=Prepared; b[p] gpu=Prepared")
		n.Release(p.UID)
		n.expect(t, "unprepare gpu a,b", "unprepare nic a", "settled uid-p")
	})
}

// A claim that is gone at the API server holds nothing up, and the next one to be recorded is another.
func TestClaimsOfRunningPodAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := twoPods(t, n)
		n.stop()
		for _, name := range []string{FileName, KubeletFile} {
			if err := os.Remove(filepath.Join(n.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		delete(n.claims, "b")
		n.start(t)
		time.Sleep(time.Minute)
		n.expectStages(t, "a[q] gpu=Preparing nic=Preparing")
		if _, err := n.CDI(t.Context(), p, "main"); err == nil || !strings.Contains(err.Error(),
			"fetch ResourceClaim b") {
			t.Errorf("error %v", err)
		}
		n.Release(q.UID)
		n.expect(t, "unprepare gpu a", "unprepare nic a", "settled uid-q")
	})
}

// CDI specs that are gone are made again before a container is, by the drivers whose they were. An
// error names the driver that is not there. A driver whose specs are never found is believed.
func TestCDISpecsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stop()
		n.cdi = []string{filepath.Join(n.dir, "cdi"), filepath.Join(n.dir, "etc")}
		n.start(t)
		p, q := twoPods(t, n)
		n.expectCDI(t, p, 3)
		n.expect(t)
		spec := filepath.Join(n.cdi[0], gpus+"-uid-a.yaml")
		if err := os.Remove(spec); err != nil {
			t.Fatal(err)
		}
		n.restart(t)
		n.set(func() { n.usable.Delete(gpus) })
		if _, err := n.CDI(t.Context(), p, "main"); !errors.Is(err, dra.ErrNotRegistered) ||
			!strings.Contains(err.Error(), "ResourceClaim a has to be prepared again: DRA driver "+gpus) {
			t.Errorf("error %v", err)
		}
		n.expect(t)
		n.expectStages(t, "a[p q] gpu=Prepared nic=Prepared; b[p] gpu=Prepared")
		n.set(func() { n.usable.Insert(gpus); n.fail[gpus] = errFake })
		if _, err := n.CDI(t.Context(), q, "main"); !errors.Is(err, errFake) {
			t.Errorf("error %v", err)
		}
		n.expect(t, "prepare gpu a")
		n.expectStages(t, "a[p q] gpu=Preparing nic=Prepared; b[p] gpu=Prepared")
		n.set(func() { n.fail = map[string]error{} })
		n.expectCDI(t, q, 2)
		n.expectCDI(t, p, 3)
		n.expect(t, "prepare gpu a")
		if _, err := os.Stat(spec); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(n.cdi[0]); err != nil {
			t.Fatal(err)
		}
		n.expectCDI(t, p, 3)
		n.expect(t, "prepare gpu a,b", "prepare nic a")
		n.stop()
		n.cdi = []string{filepath.Join(n.dir, "elsewhere"), n.cdi[0]}
		n.looks = n.cdi[1:]
		if err := os.RemoveAll(n.cdi[1]); err != nil {
			t.Fatal(err)
		}
		n.start(t)
		n.expectCDI(t, q, 2)
		n.expect(t, "prepare gpu a", "prepare nic a")
		n.expectCDI(t, q, 2)
		n.expect(t)
	})
}
