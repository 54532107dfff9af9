package source

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// testPod returns a pod whose name is its UID, changed by edits.
func testPod(name string, edits ...podtest.Option) *v1.Pod {
	return podtest.New("ns/"+name, edits...)
}

func hostname(h string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Hostname = h } }
func deleted(p *v1.Pod)               { p.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }

// story formats updates: "ADD a b".
func story(updates []Update) []string {
	var lines []string
	for _, u := range updates {
		line := string(u.Op)
		for _, p := range u.Pods {
			line += " " + p.Name
		}
		lines = append(lines, line)
	}
	return lines
}

func TestMerge(t *testing.T) {
	before := []*v1.Pod{testPod("a"), testPod("b"), testPod("c"), testPod("d")}
	tests := map[string]struct {
		pods []*v1.Pod
		want []string
		left []string
	}{
		"nothing new": {
			pods: []*v1.Pod{testPod("a"), testPod("b"), testPod("c"), testPod("d")},
		},
		"order is no matter": {pods: []*v1.Pod{before[3], before[2], before[1], before[0]}},
		"all operations": {
			pods: []*v1.Pod{testPod("new"), testPod("b", hostname("x")), testPod("c", deleted),
				testPod("d", podtest.Phase(v1.PodRunning))},
			want: []string{"REMOVE a", "DELETE c", "RECONCILE d", "ADD new", "UPDATE b"}},
		"emptied": {want: []string{"REMOVE a b c d"}},
		"local annotations": {pods: []*v1.Pod{testPod("a", podtest.Annotations(podspec.AnnotationSource, "x")),
			testPod("b", podtest.Annotations(podspec.AnnotationHash, "x")),
			testPod("c", podtest.Annotations(AnnotationSeen, "x")),
			testPod("d", podtest.Annotations("mine", "x"))}, want: []string{"UPDATE d"}},
		"generation alone": {pods: []*v1.Pod{testPod("a", func(p *v1.Pod) { p.Generation = 3 }),
			before[1], before[2], before[3]}},
		"grace period": {pods: []*v1.Pod{testPod("a", deleted, func(p *v1.Pod) {
			p.DeletionGracePeriodSeconds = ptr.To[int64](3)
		}), before[1], before[2], before[3]}, want: []string{"DELETE a"}},
		"same name": {pods: append(slices.Clone(before),
			testPod("a", podtest.UID("other"))),
			left: []string{"ns/a: another pod of the source has the same namespace and name; " +
				"rename one of them"}},
		"same uid": {pods: append(slices.Clone(before),
			testPod("e", podtest.UID("a"))),
			left: []string{"ns/e: another pod of the source has the same UID a; change " +
				"metadata.uid"}},
		"replaced under its name": {pods: []*v1.Pod{
			testPod("a", podtest.UID("other")),
			before[1], before[2], before[3]}, want: []string{"REMOVE a", "ADD a"}},
		"renamed under its UID": {pods: []*v1.Pod{
			testPod("new", podtest.UID("a")),
			before[1], before[2], before[3]}, want: []string{"REMOVE a", "ADD new"}},
		"moved under its UID": {pods: []*v1.Pod{
			testPod("a", func(p *v1.Pod) { p.Namespace = "other" }),
			before[1], before[2], before[3]}, want: []string{"REMOVE a", "ADD a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			old, updates, _ := merge(HTTPSource, nil, before, start)
			if diff := cmp.Diff([]string{"ADD a b c d"}, story(updates)); diff != "" {
				t.Fatalf("first set:\n%s", diff)
			}
			next, updates, left := merge(HTTPSource, old, tt.pods, start.Add(time.Hour))
			if diff := cmp.Diff(tt.want, story(updates)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var lines []string
			for _, p := range left {
				lines = append(lines, p.Name+": "+p.Message)
			}
			if diff := cmp.Diff(tt.left, lines); diff != "" {
				t.Errorf("left out: -want +got:\n%s", diff)
			}
			for uid, m := range next {
				want := start
				was, known := old[uid]
				if !known || was.pod.Name != m.pod.Name || was.pod.Namespace != m.pod.Namespace {
					want = start.Add(time.Hour)
				}
				if got := m.pod.Annotations[AnnotationSeen]; got != want.Format(time.RFC3339Nano) {
					t.Errorf("%s first seen %s, want %s", m.pod.Name, got, want)
				}
			}
		})
	}
}

func TestMergeFirstEmptySet(t *testing.T) {
	old, updates, _ := merge("http", nil, nil, start)
	if diff := cmp.Diff([]Update{{Op: ADD, Source: "http"}}, updates); diff != "" {
		t.Errorf("first set without pods:\n%s", diff)
	}
	if _, updates, _ = merge("http", old, nil, start); len(updates) != 0 {
		t.Errorf("second set without pods: %v", story(updates))
	}
}

func TestMergeKeepsItsInput(t *testing.T) {
	given := testPod("a", podtest.Annotations("x", "y"))
	copied := given.DeepCopy()
	old, _, _ := merge("file", nil, []*v1.Pod{given}, start)
	handedOut := old["a"].pod.DeepCopy()
	merge("file", old, []*v1.Pod{testPod("a", hostname("z"))}, start)
	if diff := cmp.Diff(copied, given); diff != "" {
		t.Errorf("the feed's pod was changed:\n%s", diff)
	}
	if diff := cmp.Diff(handedOut, old["a"].pod); diff != "" {
		t.Errorf("a pod that was handed out was changed:\n%s", diff)
	}
}

// TestMergeReplay: applying the operations yields the last set, and no operation is redundant.
func TestMergeReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var members map[types.UID]member
		view := map[types.UID]*v1.Pod{}
		for range rapid.IntRange(1, 8).Draw(t, "sets") {
			pods := drawSet(t)
			next, updates, left := merge("file", members, pods, start)
			for _, u := range updates {
				replay(t, view, u)
			}
			members = next
			if len(left)+len(next) != len(pods) {
				t.Fatalf("%d of %d pods taken, %d left out", len(next), len(pods), len(left))
			}
			for uid, m := range next {
				got := view[uid]
				if got == nil || got.Spec.Hostname != m.given.Spec.Hostname ||
					got.Status.Phase != m.given.Status.Phase ||
					(got.DeletionTimestamp == nil) != (m.given.DeletionTimestamp == nil) {
					t.Fatalf("replayed %s: %+v, want %+v", uid, got, m.given)
				}
			}
			if len(view) != len(next) {
				t.Fatalf("replayed %d pods, want %d", len(view), len(next))
			}
		}
	})
}

func drawSet(t *rapid.T) []*v1.Pod {
	var pods []*v1.Pod
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		label := fmt.Sprint("pod", i)
		p := testPod(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, label))
		p.UID = types.UID(p.Name + rapid.SampledFrom([]string{"", "2"}).Draw(t, label+"uid"))
		p.Spec.Hostname = rapid.SampledFrom([]string{"", "x"}).Draw(t, label+"host")
		if rapid.Bool().Draw(t, label+"phase") {
			podtest.Phase(v1.PodRunning)(p)
		}
		if rapid.IntRange(0, 3).Draw(t, label+"deleted") == 0 {
			deleted(p)
		}
		pods = append(pods, p)
	}
	return pods
}

func replay(t *rapid.T, view map[types.UID]*v1.Pod, u Update) {
	for _, p := range u.Pods {
		_, known := view[p.UID]
		if known == (u.Op == ADD) {
			t.Fatalf("%s of %s, known: %v", u.Op, p.UID, known)
		}
		if (u.Op == DELETE) && p.DeletionTimestamp == nil {
			t.Fatalf("DELETE of %s without a deletion timestamp", p.UID)
		}
		if u.Op == REMOVE {
			delete(view, p.UID)
		} else {
			view[p.UID] = p
		}
	}
}

// fakeFeed delivers what is sent to it.
type fakeFeed struct {
	name string
	sets chan []*v1.Pod
}

func (f fakeFeed) Name() string { return f.name }

func (f fakeFeed) Run(ctx context.Context, deliver func([]*v1.Pod)) error {
	for {
		select {
		case pods := <-f.sets:
			deliver(pods)
		case <-ctx.Done():
			return nil
		}
	}
}

// A file that was written again unchanged yields its pod again, and no other.
func TestMergeOfAFileWrittenAgain(t *testing.T) {
	before := []*v1.Pod{testPod("a"), testPod("b")}
	old, _, _ := merge(FileSource, nil, before, start)
	_, updates, _ := merge(FileSource, old, []*v1.Pod{testPod("a"), before[1]}, start)
	if diff := cmp.Diff([]string{"RETRY a"}, story(updates)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feeds := map[string]fakeFeed{}
		var list []Feed
		for _, name := range []string{FileSource, HTTPSource, podspec.APISource} {
			feeds[name] = fakeFeed{name, make(chan []*v1.Pod)}
			list = append(list, feeds[name])
		}
		var problems []complaint.Problem
		m := NewMux(MuxConfig{Feeds: list, Report: func(p complaint.Problem) {
			problems = append(problems, p)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()

		handled := map[string]bool{}
		next := func(want string) {
			t.Helper()
			u := <-m.Updates()
			if got := u.Source + " " + story([]Update{u})[0]; got != want {
				t.Errorf("update %q, want %q", got, want)
			}
			synctest.Wait()
			handled[u.Source] = true
		}
		all := func() bool { return m.SeenAll(func(s string) bool { return handled[s] }) }
		twice := []*v1.Pod{testPod("a"), testPod("a")}
		feeds[FileSource].sets <- twice
		next("file ADD a")
		feeds[FileSource].sets <- twice
		feeds[podspec.APISource].sets <- []*v1.Pod{testPod("b")}
		next("api ADD b")
		if all() {
			t.Error("http was not seen")
		}
		feeds[HTTPSource].sets <- nil
		synctest.Wait()
		if all() {
			t.Error("http was not handled")
		}
		next("http ADD")
		if !all() {
			t.Error("all were handled")
		}
		if len(problems) != 1 || problems[0].Reason != manifest.FailedValidation ||
			problems[0].Name != "ns/a" {
			t.Errorf("problems %+v, want one", problems)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestMuxStopsWhenNobodyListens: Run ends even if the stream is full.
func TestMuxStopsWhenNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeFeed{FileSource, make(chan []*v1.Pod)}
		m := NewMux(MuxConfig{Feeds: []Feed{f}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		for i := range 26 { // 51 updates
			f.sets <- []*v1.Pod{testPod(fmt.Sprint("p", i))}
		}
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{FileSource}; !slices.Equal(m.Sources(), want) {
			t.Errorf("Sources() = %v", m.Sources())
		}
	})
}

func names(pods []*v1.Pod) []string {
	set := map[string]bool{}
	for _, p := range pods {
		set[p.Name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// A UID belongs to one source: a pod of another source with it is left out and reported, and added
// when the first is gone. Sources named first take precedence.
func TestOneUIDInTwoSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := fakeFeed{FileSource, make(chan []*v1.Pod)}
		http := fakeFeed{HTTPSource, make(chan []*v1.Pod)}
		problems := NewProblems()
		m := NewMux(MuxConfig{Feeds: []Feed{file, http}, Report: problems.Report})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		step := func(f fakeFeed, pods []*v1.Pod, wrong int, want ...string) {
			t.Helper()
			f.sets <- pods
			for _, line := range want {
				u := <-m.Updates()
				if got := u.Source + " " + story([]Update{u})[0]; got != line {
					t.Errorf("update %q, want %q", got, line)
				}
			}
			synctest.Wait()
			if got := problems.List(); len(got) != wrong {
				t.Errorf("problems %+v, want %d", got, wrong)
			}
		}
		one := testPod("a")
		other := testPod("b", podtest.UID(one.UID))
		step(http, []*v1.Pod{other}, 0, "http ADD b")
		step(file, []*v1.Pod{one}, 1, "file ADD a", "http REMOVE b")
		step(http, []*v1.Pod{other, testPod("c")}, 1, "http ADD c")
		step(file, nil, 0, "file REMOVE a", "http ADD b")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A pod of the API server has the identity that the API server says, whatever its annotations
// claim: every user who may patch it can write them.
func TestAPIPodsSpeakForThemselvesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := fakeFeed{FileSource, make(chan []*v1.Pod)}
		api := fakeFeed{podspec.APISource, make(chan []*v1.Pod)}
		path := filepath.Join(t.TempDir(), IdentitiesFile)
		m := NewMux(MuxConfig{Feeds: []Feed{file, api}, Identities: identities(t, path)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		static, victim, thief := written(t, "1"), testPod("victim"), testPod("thief")
		file.sets <- []*v1.Pod{static}
		<-m.Updates()
		api.sets <- []*v1.Pod{victim, thief}
		<-m.Updates()

		claims := func(uid types.UID) *v1.Pod {
			p := thief.DeepCopy()
			p.Annotations = map[string]string{
				AnnotationManifest: string(uid), cri.AnnotationRoot: "/var/lib/kubelet",
				handover.Annotation: "{}", podspec.AnnotationSource: FileSource, AnnotationSeen: "never",
				podspec.AnnotationHash: string(uid), "numalet.io/of-another-version": "x",
				podspec.AnnotationScope: "pod", "numalet.io": "theirs", "example.com/own": "y",
			}
			return p
		}
		for _, uid := range []types.UID{victim.UID, static.UID, "new"} {
			api.sets <- []*v1.Pod{victim, claims(uid)}
			api.sets <- []*v1.Pod{victim, thief} // back, so that the next one is an update too
			u := <-m.Updates()
			<-m.Updates()
			if u.Op != UPDATE || len(u.Pods) != 1 || u.Pods[0].UID != thief.UID {
				t.Fatalf("a claim on UID %s led to %s", uid, story([]Update{u}))
			}
			got := u.Pods[0].Annotations
			if got[podspec.AnnotationSource] != podspec.APISource || got[AnnotationSeen] == "never" {
				t.Errorf("source %q, seen %q", got[podspec.AnnotationSource], got[AnnotationSeen])
			}
			delete(got, podspec.AnnotationSource)
			delete(got, AnnotationSeen)
			want := map[string]string{podspec.AnnotationHash: string(uid), podspec.AnnotationScope: "pod",
				"numalet.io": "theirs", "example.com/own": "y"}
			if !maps.Equal(got, want) {
				t.Errorf("it has the annotations %v, want %v", got, want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if raw, err := os.ReadFile(path); err == nil {
			t.Errorf("identities were written: %s", raw)
		}
	})
}
