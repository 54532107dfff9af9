package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/test/harness"
)

// problemsOf returns the agent's present problems with names that end in suffix.
func problemsOf(n *harness.Node, suffix string) ([]complaint.Problem, error) {
	var all, out []complaint.Problem
	if err := json.Unmarshal([]byte(n.Get("/problems")), &all); err != nil {
		return nil, err
	}
	for _, p := range all {
		if strings.HasSuffix(p.Name, suffix) {
			out = append(out, p)
		}
	}
	return out, nil
}

// awaitProblem waits until there is exactly one problem with that file and returns it.
func awaitProblem(n *harness.Node, file string) complaint.Problem {
	var found complaint.Problem
	n.Eventually("there is one problem with "+file, func() error {
		got, err := problemsOf(n, file)
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("there are %+v", got)
		}
		if err == nil {
			found = got[0]
		}
		return err
	})
	return found
}

func awaitNoProblem(n *harness.Node, file string) {
	n.Eventually("there is no problem with "+file, func() error {
		got, err := problemsOf(n, file)
		if err == nil && len(got) != 0 {
			err = fmt.Errorf("there are %+v", got)
		}
		return err
	})
}

// put writes a file into the manifest directory in one step.
func put(t testing.TB, n *harness.Node, name, content string) {
	t.Helper()
	tmp := filepath.Join(n.Dir, name+".tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(n.Manifests, name)); err != nil {
		t.Fatal(err)
	}
}

// TestBadManifests: each is reported once with its name and the reason, and no other pod is
// affected. Once a good manifest replaces it, the pod starts and the problem is gone.
func TestBadManifests(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["fileCheckFrequency"] = "200ms"
	n.Start()
	n.Pod("good", plain("good"))
	n.AwaitPhase("good-node", v1.PodRunning)

	whole := plain("victim")
	tests := []struct {
		name, content  string
		reason, phrase string
	}{
		{"truncated.yaml", whole[:len(whole)-12], manifest.InvalidManifest, ""},
		{"json.json", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"na`,
			manifest.InvalidManifest, ""},
		{"kind.yaml", strings.Replace(whole, "kind: Pod", "kind: Service", 1),
			manifest.InvalidManifest, `kind "Service"`},
		{"big.yaml", whole + strings.Repeat("# filler\n", 11<<20/9), manifest.Unreadable, "10 MiB"},
		{"binary.yaml", "\x7fELF\x00\x01\xff\xfe\x00binary", manifest.InvalidManifest, ""},
		{"climb.yaml", plain("../climb"), manifest.FailedValidation, "metadata.name"},
		{"empty.yaml", "", manifest.InvalidManifest, ""},
		{"many.yaml", whole + "---\n" + plain("second"), manifest.InvalidManifest, "document"},
		{"nothing.yaml", manifestOf("nothing", "restartPolicy: Always"), manifest.FailedValidation,
			"spec.containers"},
		{"type.yaml", manifestOf("type", "hostNetwork: maybe\n  containers: [{name: a, image: b}]"),
			manifest.InvalidManifest, "spec.hostNetwork"},
		{"secret.yaml", manifestOf("secret", "volumes: [{name: s, secret: {secretName: x}}]\n"+
			"  containers: [{name: a, image: b}]"), manifest.FailedValidation,
			"static pods may not reference secrets"},
	}
	for _, tc := range tests {
		put(t, n, tc.name, tc.content)
	}
	for _, tc := range tests {
		p := awaitProblem(n, "/"+tc.name)
		if p.Reason != tc.reason || !strings.Contains(p.Message, tc.phrase) ||
			strings.Contains(p.Message, "\n") {
			t.Errorf("%s: problem %+v, want reason %s and %q on one line", tc.name, p, tc.reason,
				tc.phrase)
		}
	}
	fixed := func(file string) string { return strings.SplitN(file, ".", 2)[0] + "-fixed" }
	for _, tc := range tests {
		if got := logged(t, n, "Manifest refused", "/"+tc.name+`"`, tc.reason); got != 1 {
			t.Errorf("%s: reported %d times in the log", tc.name, got)
		}
		put(t, n, tc.name, plain(fixed(tc.name)))
	}
	for _, tc := range tests {
		n.AwaitPhase(fixed(tc.name)+"-node", v1.PodRunning)
		awaitNoProblem(n, "/"+tc.name)
	}
	if got := len(calls(n, call{method: "CreateContainer", pod: "good-node"})); got != 1 {
		t.Errorf("the good pod's container was created %d times", got)
	}
	if got := calls(n, call{method: "StopContainer"}); len(got) != 0 {
		t.Errorf("containers were stopped: %+v", got)
	}
}

// TestBadFileKeepsItsPod: a manifest that turns bad is reported and does not stop its pod. Removing
// the file ends the pod and the problem.
func TestBadFileKeepsItsPod(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("app", plain("app"))
	before := n.AwaitPhase("app-node", v1.PodRunning)
	put(t, n, "app.yaml", "kind: [broken")
	awaitProblem(n, "/app.yaml")
	n.Pod("other", plain("other"))
	if after := n.AwaitPhase("app-node", v1.PodRunning); after.UID != before.UID {
		t.Errorf("the pod was replaced: %s, then %s", before.UID, after.UID)
	}
	n.AwaitPhase("other-node", v1.PodRunning)
	n.RemovePod("app")
	n.AwaitGone("app-node")
	awaitNoProblem(n, "/app.yaml")
}

func TestDuplicateNames(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("a", plain("same"))
	before := n.AwaitPhase("same-node", v1.PodRunning)
	n.Pod("b", plain("same", "main: term=0"))
	if p := awaitProblem(n, "/b.yaml"); p.Reason != manifest.FailedValidation ||
		!strings.Contains(p.Message, "default/same-node") ||
		!strings.Contains(p.Message, "a.yaml") {
		t.Errorf("problem %+v, want one that names the pod and the other file", p)
	}
	// Once the first is gone, the second gets its turn.
	n.RemovePod("a")
	awaitPod(n, "same-node", func(pod v1.Pod) error {
		if pod.UID == before.UID || pod.Status.Phase != v1.PodRunning {
			return fmt.Errorf("it is %s of %s", pod.Status.Phase, pod.UID)
		}
		return nil
	})
	awaitNoProblem(n, "/b.yaml")
}

// TestOddEntries covers entries of the manifest directory that are no readable files.
func TestOddEntries(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["fileCheckFrequency"] = "200ms"
	n.Start()
	in := func(name string) string { return filepath.Join(n.Manifests, name) }
	for _, err := range []error{
		os.Mkdir(in("folder.yaml"), 0o755),
		os.WriteFile(in("folder.yaml/inside.yaml"), []byte(plain("inside")), 0o644),
		os.Symlink("loop.yaml", in("loop.yaml")),
		syscall.Mkfifo(in("pipe.yaml"), 0o644),
		os.WriteFile(in(".hidden.yaml"), []byte(plain("hidden")), 0o644),
		os.WriteFile(filepath.Join(n.Dir, "elsewhere"), []byte(plain("linked")), 0o644),
		os.Symlink(filepath.Join(n.Dir, "elsewhere"), in("link.yaml")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	unreadable := []string{"loop.yaml", "pipe.yaml", "folder.yaml"}
	if os.Getuid() != 0 { // root could read the file
		if err := os.WriteFile(in("locked.yaml"), []byte(plain("locked")), 0); err != nil {
			t.Fatal(err)
		}
		unreadable = append(unreadable, "locked.yaml")
	}
	for _, name := range unreadable {
		if p := awaitProblem(n, "/"+name); p.Reason != manifest.Unreadable {
			t.Errorf("%s: problem %+v", name, p)
		}
	}
	n.AwaitPhase("linked-node", v1.PodRunning)
	pods, err := n.Pods()
	if err != nil || len(pods) != 1 {
		t.Errorf("pods %v (%v), want linked-node only", pods, err)
	}
	for _, name := range unreadable {
		if got := logged(t, n, "Manifest refused", "/"+name+`"`); got != 1 {
			t.Errorf("%s: reported %d times in the log", name, got)
		}
		if err := os.RemoveAll(in(name)); err != nil {
			t.Fatal(err)
		}
		awaitNoProblem(n, "/"+name)
	}
}

func TestSingleFileSource(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["staticPodPath"] = filepath.Join(n.Manifests, "only.yaml")
	n.Start() // the file does not exist yet
	n.Pod("other", plain("other"))
	n.Pod("only", plain("only"))
	n.AwaitPhase("only-node", v1.PodRunning)
	if pods, err := n.Pods(); err != nil || len(pods) != 1 {
		t.Errorf("pods %v (%v), want only-node", pods, err)
	}
	n.RemovePod("only")
	n.AwaitGone("only-node")
}

func TestHTTPSource(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	var secret atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Secret") != "sesame" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		secret.Add(1)
		_, _ = w.Write([]byte(answer.Load().(string))) // the agent may be gone
	}))
	t.Cleanup(server.Close)
	answer.Store(plain("single"))
	n := harness.New(t)
	n.Settings["staticPodURL"] = server.URL
	n.Settings["staticPodURLHeader"] = map[string][]string{"X-Secret": {"sesame"}}
	n.Settings["httpCheckFrequency"] = "100ms"
	n.Start()
	n.Pod("file", plain("file"))
	n.AwaitPhase("single-node", v1.PodRunning)
	file := n.AwaitPhase("file-node", v1.PodRunning)
	if got := file.Annotations["kubernetes.io/config.source"]; got != "file" {
		t.Errorf("the source of file-node is %q", got)
	}
	if log := readLog(t, n); strings.Contains(log, "sesame") ||
		!strings.Contains(log, `"Effective KubeletConfiguration"`) {
		t.Error("the log has no configuration, or shows the value of a header")
	}

	item := func(name string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec":
{"containers": [{"name": "main", "image": "sim.local/app"}]}}`, name)
	}
	answer.Store(fmt.Sprintf(`{"apiVersion": "v1", "kind": "PodList", "items": [%s, %s, %s]}`,
		item("one"), item("../two"), item("three")))
	n.AwaitPhase("one-node", v1.PodRunning)
	three := n.AwaitPhase("three-node", v1.PodRunning)
	if got := three.Annotations["kubernetes.io/config.source"]; got != "http" {
		t.Errorf("the source of three-node is %q", got)
	}
	n.AwaitGone("single-node")
	awaitProblem(n, "items[1]")

	answer.Store("not a pod at all")
	awaitProblem(n, server.URL)
	n.AwaitPhase("one-node", v1.PodRunning) // the last good answer stands
	answer.Store(item("one"))
	n.AwaitGone("three-node")
	awaitNoProblem(n, server.URL)
	awaitNoProblem(n, "items[1]")
	n.AwaitPhase("one-node", v1.PodRunning)
	n.AwaitPhase("file-node", v1.PodRunning)
	server.Close()
	awaitProblem(n, server.URL)
	n.AwaitPhase("one-node", v1.PodRunning)
	if secret.Load() == 0 {
		t.Error("the server never saw the header")
	}
}

func readLog(t testing.TB, n *harness.Node) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A missing folder of manifests is reported until it exists.
func TestManifestFolderMissing(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	if err := os.Remove(n.Manifests); err != nil {
		t.Fatal(err)
	}
	n.Start()
	if p := awaitProblem(n, n.Manifests); p.Reason != manifest.Absent ||
		!strings.Contains(p.Message, "make the folder, or correct staticPodPath") {
		t.Errorf("problem %+v", p)
	}
	awaitLogged(t, n, "No manifests", n.Manifests)
	if err := os.Mkdir(n.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	n.Pod("app", plain("app"))
	n.AwaitPhase("app-node", v1.PodRunning)
	n.Eventually("nothing is wrong any more", func() error {
		got, err := problemsOf(n, n.Manifests)
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("there are %+v", got)
		}
		return err
	})
}
