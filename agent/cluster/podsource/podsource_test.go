package podsource

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// site is a feed with the Mux that it feeds.
type site struct {
	*api
	t        *testing.T
	feed     *Feed
	mux      *source.Mux
	problems *source.Problems
	restored chan struct{}

	mu   sync.Mutex // guards sets
	sets int
}

// runtimePods are running pods of the API server, with others that do not count.
func runtimePods(uids []types.UID) []cri.Pod {
	made := func(uid types.UID, from string, ready bool) cri.Pod {
		return cri.Pod{UID: uid, Sandboxes: []cri.Sandbox{{
			Ready: ready, Annotations: map[string]string{podspec.AnnotationSource: from}}}}
	}
	out := []cri.Pod{{UID: "bare", Containers: []cri.Container{
		{State: cri.ContainerRunning}}}, made("ended", podspec.APISource, false),
		made("static", source.FileSource, true)}
	for _, uid := range uids {
		out = append(out, made(uid, podspec.APISource, true))
	}
	return out
}

func newSite(t *testing.T, a *api) *site { return siteWith(t, a, nil) }

// siteWith is a site where those pods run.
func siteWith(t *testing.T, a *api, running []types.UID) *site {
	s := &site{api: a, t: t, problems: source.NewProblems(), restored: make(chan struct{}, 1)}
	s.feed = New(Config{
		Client: a.client(t), Node: "n", Report: s.problems.Report, Restored: s.restored,
		Running: func() []cri.Pod { return runtimePods(running) },
		Saw: func(all []*v1.Pod) []*v1.Pod {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sets++
			return all
		},
	})
	s.mux = source.NewMux(source.MuxConfig{
		Feeds: []source.Feed{s.feed}, Report: s.problems.Report,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.mux.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// expect waits until the updates so far are these words, "ADD a b".
func (s *site) expect(want ...string) {
	s.t.Helper()
	var got []string
	for timeout := time.After(time.Minute); len(got) < len(want); {
		select {
		case u := <-s.mux.Updates():
			line := string(u.Op)
			for _, p := range u.Pods {
				line += " " + p.Name
			}
			got = append(got, line)
		case <-timeout:
			s.t.Fatalf("got %q, want %q", got, want)
		}
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("got %q, want %q", got, want)
	}
}

// TestStory: each change of a pod is reported once, whatever happens to the watch, and nothing
// else.
func TestStory(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.put("a", nil)
	a.put("b", nil)
	a.refuse = []int{500, 429, 403}
	s := newSite(t, a)
	time.Sleep(100 * time.Millisecond)
	if s.mux.SeenAll(func(string) bool { return true }) {
		t.Error("the source counts as seen before there was a list")
	}
	s.expect("ADD a b")

	s.put("a", func(p *v1.Pod) { p.Labels = map[string]string{"x": "y"} })
	s.expect("UPDATE a")
	s.put("b", func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
	s.expect("RECONCILE b")
	now := metav1.Now()
	s.put("b", func(p *v1.Pod) { p.DeletionTimestamp = &now })
	s.expect("DELETE b")
	s.remove("b")
	s.expect("REMOVE b")

	// A watch that is cut is resumed and reports what happened meanwhile.
	s.do(func() { s.cut = s.watches })
	s.put("c", nil)
	s.expect("ADD c")
	if s.lists != 1 {
		t.Errorf("%d lists for a watch that was cut", s.lists)
	}

	// An expired watch leads to a list, which reports nothing of unchanged pods.
	s.do(func() { s.refuse, s.cut = []int{500, 503}, s.watches })
	s.put("d", nil)
	s.remove("c")
	s.do(func() { s.oldest, s.log = s.version, nil })
	s.expect("REMOVE c", "ADD d")

	// The same name with another UID is another pod, even if both changes fall between two lists.
	s.do(func() { s.cut = s.watches })
	s.put("d", func(p *v1.Pod) { p.UID = "another" })
	s.do(func() { s.oldest, s.log = s.version, nil })
	s.expect("REMOVE d", "ADD d")
}

// TestEmptyFirstList: a node without pods counts as heard.
func TestEmptyFirstList(t *testing.T) {
	t.Parallel()
	s := newSite(t, newAPI(t))
	s.expect("ADD")
}

// TestRestored: after the API server was restored from a backup, versions are not compared with
// known ones.
func TestRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t, newAPI(t))
	s.expect("ADD")
	s.put("a", nil)
	s.put("b", nil)
	for got := 0; got < 2; { // in one set or in two
		got += len((<-s.mux.Updates()).Pods)
	}
	s.do(func() {
		was := s.pods["a"].DeepCopy()
		was.Spec.Containers[0].Image = "i:2" // with the same version
		s.pods = map[string]*v1.Pod{"a": was, "old": podNamed("old")}
		s.version -= 2
		s.log, s.cut = nil, 0
	})
	s.restored <- struct{}{}
	s.expect("REMOVE b", "ADD old", "UPDATE a")
	s.put("c", nil)
	s.expect("ADD c")
}

// TestOutage: while the API server does not answer, nothing is reported.
func TestOutage(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.put("a", nil)
	s := newSite(t, a)
	s.expect("ADD a")
	s.do(func() {
		for range 6 {
			s.refuse = append(s.refuse, http.StatusServiceUnavailable)
		}
		s.cut = s.watches
	})
	a.CloseClientConnections()
	s.put("b", nil)
	s.expect("ADD b")
}

// TestBurst: many changes at once make few sets, and none is lost.
func TestBurst(t *testing.T) {
	t.Parallel()
	const pods = 110
	s := newSite(t, newAPI(t))
	s.expect("ADD")
	for i := range pods {
		s.put(fmt.Sprintf("p%d", i), nil)
	}
	for i := range pods {
		s.put(fmt.Sprintf("p%d", i), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
	}
	running := map[string]bool{}
	for timeout := time.After(time.Minute); len(running) < pods; {
		select {
		case u := <-s.mux.Updates():
			for _, p := range u.Pods {
				if p.Status.Phase == v1.PodRunning {
					running[p.Name] = true
				}
				if p.ManagedFields != nil {
					t.Fatal("managed fields are kept")
				}
			}
		case <-timeout:
			t.Fatalf("%d pods were told of", len(running))
		}
	}
}

// TestHostilePods affect no other pod: those whose names cannot be used on a node are dropped, and
// the others are handed out, to be refused.
func TestHostilePods(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.put("good", nil)
	a.put("uid", func(p *v1.Pod) { p.UID = "../../etc" })
	a.put("namespace", func(p *v1.Pod) { p.Namespace = "../x" })
	a.put("elsewhere", func(p *v1.Pod) { p.Spec.NodeName = "other" })
	a.put("bad", func(p *v1.Pod) { p.Spec.Containers[0].Name = "a/b" })
	a.put("none", func(p *v1.Pod) { p.Spec = v1.PodSpec{NodeName: "n"} })
	s := newSite(t, a)
	s.expect("ADD bad good none")
	var wrong []string
	for _, p := range s.problems.List() {
		wrong = append(wrong, p.Name+": "+p.Message)
	}
	for i, want := range []string{"../x/namespace: metadata", "default/bad: spec.containers[0].name",
		"default/none: spec.containers: Required", "default/uid: metadata.uid"} {
		if i >= len(wrong) || !strings.HasPrefix(wrong[i], want) {
			t.Fatalf("problems %q, want %q at %d", wrong, want, i)
		}
	}
	s.remove("bad")
	s.expect("REMOVE bad")
	if n := len(s.problems.List()); n != 3 {
		t.Errorf("%d problems after one of four is gone", n)
	}
}
