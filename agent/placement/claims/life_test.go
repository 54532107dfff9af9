package claims

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/await"
)

// lives are pods of a node whose drivers fail, hang and go at random, and whose agent dies.
type lives struct {
	*node
	t    *testing.T
	made int

	guard sync.Mutex // guards the fields below
	rand  *rand.Rand
	calm  bool
	pods  map[types.UID]*life
	// has is what drivers have prepared, by driver and claim.
	has map[string]bool
	// under are the calls under way, by driver and claim.
	under map[string]bool
}

type life struct {
	pod    *v1.Pod
	cancel context.CancelFunc
	done   chan error // of Prepare; nil: it returned
	runs   bool
	claims []string
}

// reached is what a call comes to at the driver: it may fail before or after its effect, or hang.
func (l *lives) reached(ctx context.Context, what, driver string, claims []dra.Claim) error {
	for _, c := range claims {
		key := driver + " " + c.Name
		l.guarded(func() {
			if l.under[key] {
				l.t.Errorf("two calls to %s at once", key)
			}
			l.under[key] = true
		})
		defer l.guarded(func() { delete(l.under, key) })
	}
	n := l.dice(12)
	if n > 8 {
		await.For(ctx, time.Duration(l.dice(90))*time.Second) // a call ends with its caller
	}
	if n == 1 || ctx.Err() != nil {
		return errFake
	}
	l.guard.Lock()
	defer l.guard.Unlock()
	for _, c := range claims {
		key := driver + " " + c.Name
		if what == "prepare" {
			l.has[key] = true
			continue
		}
		delete(l.has, key)
		for _, p := range l.pods {
			if p.runs && slices.Contains(p.claims, c.Name) {
				l.t.Errorf("%s unprepares %s, with which %s runs", driver, c.Name, p.pod.Name)
			}
		}
	}
	if n == 2 {
		return errFake
	}
	return nil
}

// dice returns a number below n; no trouble if the lives are calm.
func (l *lives) dice(n int) int {
	l.guard.Lock()
	defer l.guard.Unlock()
	if l.calm {
		return min(n-1, 8)
	}
	return l.rand.IntN(n)
}

// guarded changes what drivers look at.
func (l *lives) guarded(change func()) {
	l.guard.Lock()
	defer l.guard.Unlock()
	change()
}

// step does one thing at random.
func (l *lives) step() {
	switch n := l.dice(20); {
	case n < 4 && len(l.pods) < 8:
		l.begin()
	case n < 7:
		l.end()
	case n < 8:
		l.set(func() {
			if l.usable.Has(nics) {
				l.usable.Delete(nics)
			} else {
				l.usable.Insert(nics)
			}
		})
		l.change <- struct{}{}
	case n < 9:
		l.die()
	default:
		time.Sleep(time.Duration(l.dice(20_000)) * time.Millisecond)
	}
	synctest.Wait()
	l.look()
}

// begin starts a pod, which shares a claim with one that is there or has its own.
func (l *lives) begin() {
	l.made++
	var claims []string
	if l.dice(4) > 0 {
		claims = append(claims, fmt.Sprint("shared", l.dice(2)))
	}
	claims = append(claims, fmt.Sprint("own", l.made))
	pod := l.pod(fmt.Sprint("p", l.made), claims...)
	p := &life{pod: pod, claims: claims}
	l.guarded(func() { l.pods[pod.UID] = p })
	var users []*v1.Pod
	for _, other := range l.pods {
		users = append(users, other.pod)
	}
	for _, name := range claims {
		drivers := []string{gpus, nics}
		if strings.HasPrefix(name, "own") {
			drivers = drivers[l.dice(2):]
		}
		l.claim(name, drivers, users...)
	}
	l.prepare(p)
}

func (l *lives) prepare(p *life) {
	ctx, cancel := context.WithCancel(l.t.Context())
	m := l.Manager
	done := make(chan error, 1)
	p.cancel, p.done = cancel, done
	go func() { done <- m.Prepare(ctx, p.pod) }()
}

// look sees which preparations have ended: pods whose did not succeed are tried again.
func (l *lives) look() {
	for _, p := range l.pods {
		if p.done == nil {
			continue
		}
		select {
		case err := <-p.done:
			p.done = nil
			if l.guarded(func() { p.runs = err == nil }); err == nil {
				l.running(p)
			} else if l.dice(4) > 0 {
				l.prepare(p)
			}
		default:
		}
	}
}

func (l *lives) running(p *life) {
	ids, err := l.CDI(l.t.Context(), p.pod, "main")
	if err != nil || len(ids) < len(p.claims) {
		l.t.Errorf("%s runs with %q, %v", p.pod.Name, ids, err)
	}
	for _, r := range l.book.of(p.pod.UID) {
		for _, d := range r.Drivers {
			l.guarded(func() {
				if !l.has[d.Name+" "+r.Name] {
					l.t.Errorf("%s runs, and %s has not prepared %s", p.pod.Name, d.Name, r.Name)
				}
			})
		}
	}
}

// end ends a pod: its containers first, then what is prepared for it. A pod may also vanish.
func (l *lives) end() {
	for uid, p := range l.pods {
		p.cancel()
		l.guarded(func() { delete(l.pods, uid) })
		l.set(func() { l.active.Delete(uid) })
		if l.dice(5) > 0 {
			l.Release(uid)
		}
		return
	}
}

// die ends the agent at this point, whatever is under way, and starts another one.
func (l *lives) die() {
	for _, p := range l.pods {
		if p.done != nil {
			p.cancel()
		}
	}
	l.stop()
	synctest.Wait()
	for _, p := range l.pods {
		if p.done != nil {
			<-p.done
		}
	}
	l.start(l.t)
	for _, p := range l.pods {
		if p.done != nil {
			l.prepare(p)
		}
	}
}

// Pods come, share claims, end and vanish while drivers fail, hang and go and the agent dies: nothing
// is unprepared under a pod that runs, and in the end nobody has anything. With NUMALET_STEPS there are
// more of them.
func TestLives(t *testing.T) {
	rounds := uint64(2)
	if os.Getenv("NUMALET_STEPS") != "" {
		rounds = 40
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			l := &lives{node: newNode(t), t: t, rand: rand.New(rand.NewPCG(seed, 2)),
				pods: map[types.UID]*life{}, has: map[string]bool{},
				under: map[string]bool{}}
			l.reach = l.reached
			for range 300 {
				l.step()
			}
			l.set(func() { l.usable.Insert(nics) })
			l.guarded(func() { l.calm = true })
			for len(l.pods) > 0 {
				l.end()
			}
			time.Sleep(10 * time.Minute)
			l.expectStages(t, "")
			if len(l.has) > 0 {
				t.Errorf("left prepared are %v", l.has)
			}
			if t.Failed() {
				t.Fatalf("with seed %d", seed)
			}
		})
	}
}
