package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/metric/metrictest"
)

func open(t *testing.T, dir string, p Policy) *Records {
	t.Helper()
	r, err := Open(Config{Dir: dir, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func secret(name, hash string) cri.Holder {
	return cri.Holder{Kind: cri.HolderSecret, UID: "uid-" + name, Namespace: "n", Name: name,
		Hash: hash}
}

func account(name string) cri.Holder {
	return cri.Holder{Kind: cri.HolderServiceAccount, UID: "uid-" + name, Namespace: "n",
		Name: name}
}

// pull records a pull with a login.
func pull(t *testing.T, r *Records, image, id string, by cri.Holder) {
	t.Helper()
	if err := r.Pulling(image); err != nil {
		t.Fatal(err)
	}
	r.Pulled(image, id, by)
}

func may(r *Records, image, id string, held ...cri.Holder) bool {
	return r.Accessible(image, id, func() []cri.Holder { return held })
}

// TestPolicies: which images may be used without a login, depending on whether they were pulled
// here.
func TestPolicies(t *testing.T) {
	const private, public = "reg.example/team/app:1", "docker.io/library/tool:latest"
	allowed := []string{"reg.example/team/*", "tool"}
	for _, c := range []struct {
		verify                                   kubeletv1beta1.ImagePullCredentialsVerificationPolicy
		preloaded, preloadedOther, pulled, other bool
	}{
		{kubeletv1beta1.NeverVerify, true, true, true, true},
		{kubeletv1beta1.NeverVerifyPreloadedImages, true, true, false, false},
		{kubeletv1beta1.NeverVerifyAllowlistedImages, true, false, false, false},
		{kubeletv1beta1.AlwaysVerify, false, false, false, false},
	} {
		p := Policy{Verify: c.verify}
		if c.verify == kubeletv1beta1.NeverVerifyAllowlistedImages {
			p.Allowed = allowed
		}
		r := open(t, t.TempDir(), p)
		if got := may(r, private, "id1"); got != c.preloaded {
			t.Errorf("%s: an image that was there: %v", c.verify, got)
		}
		if got := may(r, "reg.example/teams/app:1", "id2"); got != c.preloadedOther {
			t.Errorf("%s: one that is not in the list: %v", c.verify, got)
		}
		if c.verify != kubeletv1beta1.AlwaysVerify && !may(r, public, "id3") {
			t.Errorf("%s: one in the list by its short name", c.verify)
		}
		pull(t, r, private, "id1", secret("a", "h1"))
		if got := may(r, private, "id1"); got != c.pulled {
			t.Errorf("%s: an image that was pulled: %v", c.verify, got)
		}
		if got := may(r, private, "id1", secret("b", "h2"), cri.Holder{}); got != c.other {
			t.Errorf("%s: with another login: %v", c.verify, got)
		}
	}
}

// TestHolders: an image may be used with the secret that it was pulled with, even if its login has
// changed, with another secret that has the same login, and with the same service account. All may
// use an image that was pulled with the node's login or without one.
func TestHolders(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Policy{})
	const image, id = "reg.example/app:1", "sha256:1"
	pull(t, r, image, id, secret("a", "h1"))
	pull(t, r, image, id, account("robot"))
	check := func(what string, want bool, held ...cri.Holder) {
		t.Helper()
		if got := may(r, image, id, held...); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for range 2 { // the second time after a restart of the agent
		check("the secret", true, secret("a", "h1"))
		check("its new login", true, secret("a", "h3"))
		check("another secret", false, secret("b", "h2"))
		check("no login", false)
		check("the node's", false, cri.Holder{})
		check("the service account", true, account("robot"))
		check("another one", false, account("other"))
		check("one of them", true, secret("b", "h2"), account("robot"))
		r = open(t, dir, Policy{})
	}
	check("the same login in another secret", true, secret("c", "h3"))
	check("that secret with another login", true, secret("c", "h9"))
	if may(r, "reg.example/other:1", id, secret("a", "h3")) {
		t.Error("the same content below another name may be used")
	}
	pull(t, r, image, id, cri.Holder{})
	check("no login, when none was needed", true)
}

// TestFormat: the files are the kubelet's, and the metrics count them.
func TestFormat(t *testing.T) {
	dir := t.TempDir()
	registry := metrics.NewKubeRegistry()
	r, err := Open(Config{Dir: dir, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	pull(t, r, "reg.example/app:1", "sha256:1", secret("a", "h1"))
	pull(t, r, "reg.example/app:1", "sha256:1", account("robot"))
	pull(t, r, "reg.example/other:1", "sha256:2", secret("a", "h1"))
	r.Prune(sets.New("sha256:1"), time.Now().Add(time.Hour))
	if err := r.Pulling("tool:2"); err != nil {
		t.Fatal(err)
	}
	times := regexp.MustCompile(`20[0-9T:-]+Z`)
	for kind, want := range map[string]string{
		"pulled": `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",` +
			`"lastUpdatedTime":"TIME","imageRef":"sha256:1","credentialMapping":{` +
			`"reg.example/app":{"kubernetesSecrets":[{"uid":"uid-a","namespace":"n","name":"a",` +
			`"credentialHash":"h1"}],"kubernetesServiceAccounts":[{"uid":"uid-robot",` +
			`"namespace":"n","name":"robot"}]}}}`,
		"pulling": `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1",` +
			`"image":"tool:2"}`,
	} {
		names, err := filepath.Glob(filepath.Join(dir, kind, "*"))
		if err != nil || len(names) != 1 || len(filepath.Base(names[0])) != len("sha256-")+64 {
			t.Fatalf("files %q, %v", names, err)
		}
		text, err := os.ReadFile(names[0])
		got := times.ReplaceAllString(string(text), "TIME")
		if err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", kind, got, err, want)
		}
	}
	for _, name := range []string{"pullintents", "pulledrecords"} {
		name = "kubelet_imagemanager_ondisk_" + name
		if got := metrictest.Values(t, registry, name)[""]; got != 1 {
			t.Errorf("%s is %v, want 1", name, got)
		}
	}
	r.Failed("tool:2")
	if names, _ := filepath.Glob(filepath.Join(dir, "pulling", "*")); len(names) != 0 {
		t.Errorf("after the pull has failed: %q", names)
	}
}

// TestKilledWhilePulling: if an image is present whose pull was interrupted, its login is unknown;
// the intent of an absent image is dropped.
func TestKilledWhilePulling(t *testing.T) {
	dir := t.TempDir()
	killed := open(t, dir, Policy{})
	for _, image := range []string{"tool:2", "reg.example/gone:1"} {
		if err := killed.Pulling(image); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, dir, Policy{})
	if may(r, "tool:2", "id") {
		t.Error("it may be used before it is known")
	}
	pull(t, r, "tool:1", "older", secret("a", "h1"))
	err := r.Recover([]Image{
		{ID: "id", Names: []string{"docker.io/library/tool:2"}},
		{ID: "older", Names: []string{"docker.io/library/tool:2"}},
		{ID: "loaded", Names: []string{"reg.example/loaded:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Records{r, open(t, dir, Policy{})} {
		if may(r, "tool:2", "id", secret("a", "h1")) {
			t.Error("somebody may use it")
		}
		if !may(r, "reg.example/gone:1", "loaded") {
			t.Error("what was not pulled is no image that was there")
		}
		if !may(r, "tool:1", "older", secret("a", "h1")) {
			t.Error("it is not known any more with whose login another image was pulled")
		}
	}
	pull(t, r, "tool:2", "id", secret("a", "h1"))
	if !may(r, "tool:2", "id", secret("a", "h1")) {
		t.Error("it may not be used by whom has pulled it")
	}
}

// TestRecordNotWritten: if the record of a pull could not be written, the image's login stays
// unknown, whatever happens to later pulls, until one of them is recorded.
func TestRecordNotWritten(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Policy{})
	pulled := filepath.Join(dir, "pulled")
	if err := errors.Join(os.RemoveAll(pulled), os.WriteFile(pulled, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	pull(t, r, "tool:1", "id", secret("a", "h1"))
	if err := r.Pulling("tool:1"); err != nil {
		t.Fatal(err)
	}
	r.Failed("tool:1")
	if err := errors.Join(os.Remove(pulled), os.Mkdir(pulled, 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*Records{"now": r, "after a restart": open(t, dir, Policy{})} {
		if may(r, "tool:1", "id") {
			t.Errorf("%s: everybody may use it", name)
		}
	}
	pull(t, r, "tool:1", "id", secret("a", "h1"))
	if may(r, "tool:1", "id") || !may(r, "tool:1", "id", secret("a", "h1")) {
		t.Error("it is not the image of whom has pulled it")
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "pulling", "*")); len(names) != 0 {
		t.Errorf("a pull that is over is still recorded: %q", names)
	}
}

// TestBounds: a record keeps a bounded number of the latest holders; damaged and foreign files are
// skipped.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Policy{})
	for i := range maxHolders + 1 {
		pull(t, r, "app:1", "id", secret(fmt.Sprint(i), fmt.Sprint("h", i)))
	}
	for name, text := range map[string]string{
		"pulled/sha256-" + strings.Repeat("0", 64):  "{",
		"pulled/sha256-" + strings.Repeat("1", 64):  strings.Repeat(" ", maxRecord+1),
		"pulling/sha256-" + strings.Repeat("1", 64): "",
		"pulling/other": "{}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = open(t, dir, Policy{})
	if may(r, "app:1", "id", secret("0", "h0")) {
		t.Error("the first holder is still known")
	}
	if !may(r, "app:1", "id", secret("1", "h1")) ||
		!may(r, "app:1", "id", secret(fmt.Sprint(maxHolders), "")) {
		t.Error("a later holder is not known")
	}
}

// TestRecordsBeyondTheBound: more records than are read do not keep the agent from starting; the images of
// the others do not count as preloaded.
func TestRecordsBeyondTheBound(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Policy{})
	for i := range maxRecords {
		if err := os.WriteFile(r.pulled.path(fmt.Sprint("none-", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var beyond string // sorted after the others
	for i := 0; !strings.Contains(r.pulled.path(beyond), prefix+"ffff"); i++ {
		beyond = fmt.Sprint("id-", i)
	}
	pull(t, r, "tool:1", beyond, secret("a", "h1"))
	r = open(t, dir, Policy{})
	if may(r, "tool:1", beyond) || may(r, "tool:1", beyond, secret("a", "h1")) {
		t.Error("the image counts as preloaded, or its record was read")
	}
	if !may(r, "other:1", "other") {
		t.Error("a preloaded image may not be used")
	}
}

// TestLostRecords: a record that was damaged, or that stands in another's place, leaves the login
// unknown: the image does not count as preloaded.
func TestLostRecords(t *testing.T) {
	for what, damage := range map[string]func(path string) error{
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"no JSON": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"another's": func(path string) error {
			return os.WriteFile(path, []byte(`{"image": "x", "imageRef": "x"}`), 0o600)
		},
		"a folder": func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "kept"), 0o700))
		},
	} {
		dir := t.TempDir()
		r := open(t, dir, Policy{})
		pull(t, r, "tool:1", "id", secret("a", "h1"))
		if err := r.Pulling("half:1"); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{r.pulled.path("id"), r.pulling.path("half:1")} {
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string, r *Records) {
			t.Helper()
			if may(r, "tool:1", "id") || may(r, "tool:1", "id", secret("a", "h1")) ||
				may(r, "half:1", "half") {
				t.Errorf("%s, %s: the images count as preloaded", what, when)
			}
			if !may(r, "other:1", "other") {
				t.Errorf("%s, %s: a preloaded image may not be used", what, when)
			}
		}
		r = open(t, dir, Policy{})
		check("at the start", r)
		if err := r.Recover([]Image{{ID: "id", Names: []string{"docker.io/library/tool:1"}}}); err != nil {
			t.Error(err)
		}
		if err := r.Pulling("half:1"); err != nil {
			t.Error(err)
		}
		r.Failed("half:1")
		check("when it was recovered", r)
		check("after a restart", open(t, dir, Policy{}))
		pull(t, r, "tool:1", "id", secret("a", "h1"))
		pull(t, r, "half:1", "half", secret("a", "h1"))
		r = open(t, dir, Policy{})
		if !may(r, "tool:1", "id", secret("a", "h1")) || !may(r, "half:1", "half", secret("a", "h1")) {
			t.Errorf("%s: an image may not be used with the login that pulled it", what)
		}
	}
}

// What stands in the place of a folder of records is moved aside.
func TestNoFolderOfRecords(t *testing.T) {
	for _, name := range []string{"", "pulled", "pulling"} {
		dir := filepath.Join(t.TempDir(), "images")
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte("kept"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r, err := Open(Config{Dir: dir})
		if aside, _ := filepath.Glob(path + ".corrupt-*"); r == nil ||
			!errors.Is(err, files.ErrUnusable) || len(aside) != 1 {
			t.Fatalf("%q: %v, %v; %v is aside", name, r, err, aside)
		}
		pull(t, r, "tool:1", "id", secret("a", "h1"))
		if may(open(t, dir, Policy{}), "tool:1", "id") {
			t.Errorf("%q: the record of a pull is lost", name)
		}
	}
}

// TestPrune: records of images that are gone are dropped, except those pulled since.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Policy{})
	for _, id := range []string{"stays", "gone"} {
		pull(t, r, id+":1", id, secret("a", "h"))
	}
	since := time.Now()
	pull(t, r, "new:1", "new", secret("a", "h"))
	r.Prune(sets.New("stays"), since)
	for _, r := range []*Records{r, open(t, dir, Policy{})} {
		for id, known := range map[string]bool{"stays": true, "new": true, "gone": false} {
			// An image without record counts as preloaded.
			if got := !may(r, id+":1", id); got != known {
				t.Errorf("%s is known: %v", id, got)
			}
		}
	}
}
