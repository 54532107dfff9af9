package source

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

const lent = types.UID("0123456789abcdef0123456789abcdef")

// written returns the static pod of a manifest without metadata.uid.
func written(t *testing.T, env string) *v1.Pod {
	t.Helper()
	text := "{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {a: b}}, " +
		"spec: {containers: [{name: c, image: i, env: [{name: E, value: e" + env + "}]}]}}"
	d, err := manifest.Decode([]byte(text), false, true)
	if err == nil {
		err = origin{node: "n", source: FileSource, place: "/m/p"}.pod(&d.Pods[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return &d.Pods[0]
}

// ran returns the pod as the runtime has it, started by an agent that gave it that UID.
func ran(t *testing.T, p *v1.Pod, uid types.UID, ready bool,
	annotations map[string]string) cri.Pod {
	t.Helper()
	config, err := cri.ContainerConfig(p, &p.Spec.Containers[0], cri.ContainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"kubernetes.io/config.hash": string(uid), "a": "b"}
	for key, value := range annotations {
		all[key] = value
	}
	return cri.Pod{
		UID: uid, Namespace: p.Namespace, Name: p.Name,
		Sandboxes: []cri.Sandbox{{ID: "s", Ready: ready, Annotations: all,
			CreatedAt: time.Unix(1, 0)}},
		Containers: []cri.Container{{ID: "c", Name: "c", SandboxID: "s",
			Annotations: config.Annotations}},
	}
}

// TestIdentity: a pod's UID depends on what the runtime has of it.
func TestIdentity(t *testing.T) {
	p := written(t, "1")
	made := string(p.UID)
	otherImage := p.DeepCopy()
	otherImage.Spec.Containers[0].Image = "other"
	otherContainer := p.DeepCopy()
	otherContainer.Spec.Containers[0].Name = "d"
	otherGrace := p.DeepCopy()
	*otherGrace.Spec.TerminationGracePeriodSeconds = 7
	otherName := ran(t, p, lent, true, nil)
	otherName.Name = "q-n"
	strange := ran(t, p, "../"+lent, true, nil)
	alone := ran(t, p, lent, true, nil)
	alone.Containers = nil
	renamed := ran(t, otherContainer, lent, true, nil)
	renamed.Containers[0].Name = "d"
	tests := []struct {
		name  string
		found []cri.Pod
		lends bool
	}{
		{"nothing", nil, false},
		{"same definition", []cri.Pod{ran(t, p, lent, true, nil)}, true},
		{"same definition, ended", []cri.Pod{ran(t, p, lent, false, nil)}, true},
		{"no container yet", []cri.Pod{alone}, true},
		{"an older one beside it", []cri.Pod{ran(t, p, "older", false, nil),
			ran(t, p, lent, true, nil)}, true},
		{"other image", []cri.Pod{ran(t, otherImage, lent, true, nil)}, false},
		{"other container", []cri.Pod{renamed}, false},
		{"other grace period", []cri.Pod{ran(t, otherGrace, lent, true, nil)}, false},
		{"other annotation", []cri.Pod{ran(t, p, lent, true, map[string]string{"a": "c"})}, false},
		{"one more annotation",
			[]cri.Pod{ran(t, p, lent, true, map[string]string{"x": "y"})}, false},
		{"other name", []cri.Pod{otherName}, false},
		{"no UID", []cri.Pod{strange}, false},
		{"a pod of the API server", []cri.Pod{ran(t, p, lent, true, map[string]string{
			AnnotationManifest: made, podspec.AnnotationSource: podspec.APISource})}, false},
		{"ours, of this manifest", []cri.Pod{ran(t, p, lent, true,
			map[string]string{AnnotationManifest: made})}, true},
		{"ours, of another manifest", []cri.Pod{ran(t, p, lent, true,
			map[string]string{AnnotationManifest: "another"})}, false},
		{"ours, of a manifest with a UID", []cri.Pod{ran(t, p, lent, true,
			map[string]string{cri.AnnotationRoot: "/r"})}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			i := identities(t, filepath.Join(t.TempDir(), "f"), test.found...)
			want := types.UID(made)
			if test.lends {
				want = lent
			}
			got := i.Of([]*v1.Pod{p})[0]
			if got.UID != want || got.Annotations[podspec.AnnotationHash] != string(want) {
				t.Errorf("UID %s with hash %s, want %s",
					got.UID, got.Annotations[podspec.AnnotationHash], want)
			}
			if p.UID != types.UID(made) {
				t.Error("the feed's pod was changed")
			}
			if again := i.Of([]*v1.Pod{p})[0]; again.UID != want {
				t.Errorf("asked again: %s, want %s", again.UID, want)
			}
		})
	}
}

func identities(t *testing.T, path string, found ...cri.Pod) *Identities {
	return NewIdentities(path, func() []cri.Pod { return found }, func(p complaint.Problem) {
		if p.Message != "" {
			t.Error(p.Message)
		}
	}, func(err error) { t.Error(err) })
}

// TestIdentityRemembered: a pod keeps its UID without its sandbox, until its manifest changes. A
// pod that runs from before the change does not count then.
func TestIdentityRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	p, edited := written(t, "1"), written(t, "2")
	found := ran(t, p, lent, true, nil)
	of := func(i *Identities, p *v1.Pod) types.UID { return i.Of([]*v1.Pod{p})[0].UID }

	first := identities(t, path, found)
	if got := of(first, p); got != lent {
		t.Fatalf("UID %s, want %s", got, lent)
	}
	if got := of(identities(t, path), p); got != lent {
		t.Errorf("without a sandbox: %s, want %s", got, lent)
	}
	later := ran(t, p, "newer", true, nil)
	copied := filepath.Join(t.TempDir(), "f")
	raw, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(copied, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := of(identities(t, copied, later), p); got != "newer" {
		t.Errorf("beside one that was started since: %s, want newer", got)
	}
	// The containers look the same: only the record tells that the environment changed.
	if got := of(identities(t, path, found), edited); got != edited.UID {
		t.Errorf("changed while no agent ran: %s, want %s", got, edited.UID)
	}
	if got := of(first, edited); got != edited.UID {
		t.Errorf("changed while the agent runs: %s, want %s", got, edited.UID)
	}
}

// TestIdentityGiven: a UID in the manifest never changes, even beside our annotation.
func TestIdentityGiven(t *testing.T) {
	d, err := manifest.Decode([]byte("{apiVersion: v1, kind: Pod, metadata: {name: p, uid: u, annotations: "+
		"{"+AnnotationManifest+": x}}, spec: {containers: [{name: c, image: i}]}}"), false, true)
	if err == nil {
		err = origin{node: "n", source: FileSource, place: "/m/p"}.pod(&d.Pods[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &d.Pods[0]
	i := identities(t, filepath.Join(t.TempDir(), "f"), ran(t, p, lent, true, nil))
	if got := i.Of([]*v1.Pod{p})[0]; got != p || got.UID != "u" {
		t.Errorf("got UID %s, want u", got.UID)
	}
}

// TestIdentitiesFile: an unusable file is moved aside, reported, and costs no pod.
func TestIdentitiesFile(t *testing.T) {
	for _, content := range []string{"{", `[{"name": "p-n", "manifest": "m", "uid": "../x"}]`} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var reported []string
		i := NewIdentities(path, func() []cri.Pod { return nil },
			func(p complaint.Problem) { reported = append(reported, "problem: "+p.Message) },
			func(err error) { reported = append(reported, err.Error()) })
		p := written(t, "1")
		if got := i.Of([]*v1.Pod{p})[0].UID; got != p.UID {
			t.Errorf("%s: UID %s, want %s", content, got, p.UID)
		}
		aside, err := filepath.Glob(path + ".corrupt-*")
		if err != nil || len(aside) != 1 || len(reported) != 1 || !strings.Contains(reported[0], aside[0]) {
			t.Errorf("%s: %q is aside, %v, told %q", content, aside, err, reported)
		}
	}
}

// An identity that could not be written is written as soon as possible, without another event.
func TestIdentitiesAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "missing", "f")
		p, problems := written(t, "1"), NewProblems()
		f := fakeFeed{FileSource, make(chan []*v1.Pod)}
		m := NewMux(MuxConfig{Feeds: []Feed{f}, Identities: NewIdentities(path,
			func() []cri.Pod { return []cri.Pod{ran(t, p, lent, true, nil)} }, problems.Report,
			func(err error) { t.Error(err) })})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		f.sets <- []*v1.Pod{p}
		if u := <-m.Updates(); u.Pods[0].UID != lent {
			t.Errorf("UID %s, want %s", u.Pods[0].UID, lent)
		}
		time.Sleep(2 * saveAgain)
		if got := problems.List(); len(got) != 1 || got[0].Name != path {
			t.Errorf("problems %+v, want one of the file", got)
		}
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * saveAgain)
		synctest.Wait()
		list, err := files.Load(path, maxIdentitiesFile, time.Now(), decodeIdentities)
		if err != nil || len(list) != 1 || list[0].UID != lent {
			t.Errorf("the file has %+v, %v", list, err)
		}
		if got := problems.List(); len(got) > 0 {
			t.Errorf("problems %+v, want none any more", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLasting: another agent finds pods of manifests, unless we made their UIDs up.
func TestLasting(t *testing.T) {
	p := written(t, "1")
	given := written(t, "2")
	given.Name, given.UID = "given", "given"
	delete(given.Annotations, AnnotationManifest)
	m := NewMux(MuxConfig{Feeds: []Feed{NewHTTP(HTTPConfig{})}})
	if !m.Lasting("anything") {
		t.Error("nothing has been seen: any pod may be in a source")
	}
	lentOne := p.DeepCopy()
	lentOne.Name, lentOne.UID = "lent", lent
	next, _, left := merge(HTTPSource, nil, []*v1.Pod{p, given, lentOne}, time.Now())
	if len(left) > 0 {
		t.Fatal(left)
	}
	m.handed(set{source: HTTPSource}, map[string]map[types.UID]member{HTTPSource: next})
	for uid, want := range map[types.UID]bool{
		p.UID: false, "given": true, lent: true, "gone": false,
	} {
		if got := m.Lasting(uid); got != want {
			t.Errorf("pod %s: %v, want %v", uid, got, want)
		}
	}
}
