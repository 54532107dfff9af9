package beside

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// hostLogs is where both agents find the host's logs; no setting changes it.
const hostLogs = "/var/log"

// asked are the paths of the node API that are requested with each method; FOLDER is a folder below
// hostLogs.
var asked = []string{
	"/", "/nosuch", "/spec", "/spec/",
	"/configz", "/configz/", "/configz?pretty=true", "/configz/x",
	"/pods", "/pods/", "/runningpods", "/runningpods/", "/runningpods/x", "/runningpods/?x=y",
	"/stats", "/stats/", "/stats/summary", "/stats/summary/", "/stats/summary?only_cpu_and_memory=true",
	"/stats/summary?only_cpu_and_memory=maybe", "/stats/container", "/stats/nosuch",
	"/logs", "/logs/", "/logs/FOLDER", "/logs/FOLDER/", "/logs/FOLDER/file", "/logs/FOLDER/file/",
	"/logs/FOLDER/empty", "/logs/FOLDER/page.html", "/logs/FOLDER/data.gz", "/logs/FOLDER/missing",
	"/logs/FOLDER/inside", "/logs/FOLDER/outside", "/logs/FOLDER/dangling", "/logs/FOLDER/with%20space",
	"/logs/FOLDER/sub/", "/logs/FOLDER/sub/index.html",
	"/logs/../../etc/passwd", "/logs/..%2f..%2fetc%2fpasswd", "/logs/%2e%2e/%2e%2e/etc/passwd",
	"/logs//etc/passwd", "/logs/FOLDER/../FOLDER/file", "/logs/FOLDER/file%00", "/logs/FOLDER/./file",
	"/logs/?query=kubelet", "/logs/?x=y",
	"/healthz", "/healthz/", "/healthz/ping", "/healthz/nosuch", "/metrics", "/metrics/",
	"/metrics/nosuch", "/containerLogs/", "/containerLogs/a/b/c", "/containerLogs/a/b",
	"/run/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/checkpoint/a/b/c",
	"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/nosuch", "/debug/flags/v", "/flagz",
	"/statusz",
}

// TestAnswersBeside: numalet answers each request with the stock kubelet's status and content type,
// and where that is JSON with the same fields; of the configuration with the same values.
func TestAnswersBeside(t *testing.T) {
	seen := map[string]map[string]string{}
	folder := fill(t)
	for _, agent := range []string{"kubelet", "numalet"} {
		if !t.Run(agent, func(t *testing.T) { seen[agent] = answers(t, agent, folder) }) {
			return
		}
	}
	if len(seen["kubelet"]) == 0 || len(seen["numalet"]) == 0 {
		t.Skip("left out: one of them was")
	}
	compare(t, seen["kubelet"], seen["numalet"], answerDifferences)
}

// fill makes a folder below the host's logs.
func fill(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: the host's logs are root's")
	}
	dir, err := os.MkdirTemp(hostLogs, "numalet-beside-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"file": "a line\n", "empty": "", "page.html": "<p>", "with space": "x", "sub/index.html": "<p>",
		"data.gz": "\x1f\x8b\x08",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"inside": "file", "outside": "/etc/passwd", "dangling": "nothing",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Base(dir)
}

// answers returns the answers of a node with one pod.
func answers(t *testing.T, agent, folder string) map[string]string {
	t.Helper()
	c := rig.Start(t)
	n, _, _ := containerdrig.Node(t)
	if agent == "kubelet" {
		rig.StockKubelet(t, n)
	}
	n.Settings["evictionHard"] = noEviction
	w := recorder{t, c, c.Join(n, "answers-"+agent), nil}
	w.plain = newWords(c.Namespace, w.node.Name)
	n.Start()
	c.AwaitReady(w.node.Name)
	made, err := pods[0].object(w.node.Name)
	if err == nil {
		_, err = c.Client.CoreV1().Pods(c.Namespace).Create(t.Context(), made, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	client, base := w.client()
	harness.Eventually(t, "the pod's container runs", func() error {
		_, text, err := ask(client, http.MethodGet, base, "/runningpods/")
		if err == nil && !strings.Contains(text, `"main"`) {
			err = fmt.Errorf("there runs %s", text)
		}
		return err
	})
	out := map[string]string{}
	for _, path := range asked {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
			where := method + " " + path
			said, text, err := ask(client, method, base, strings.ReplaceAll(path, "FOLDER", folder))
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			out[where] = strings.ReplaceAll(said, folder, "FOLDER")
			if method != http.MethodGet || !json.Valid([]byte(text)) || path == "/healthz" {
				continue
			}
			for field, is := range w.fields(path, text) {
				out[where+" "+field] = is
			}
		}
	}
	return out
}

// fields returns the fields of an answer: of the configuration with values, of others with types.
func (w recorder) fields(path, text string) map[string]string {
	w.Helper()
	switch path {
	case "/configz":
	case "/runningpods/":
		return shape(w.T, text)
	default: // compared elsewhere
		return nil
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		w.Fatal(err)
	}
	return w.plain.flat(w, value)
}

// client returns an HTTP client that may read everything of the node and follows no redirects.
func (w recorder) client() (*http.Client, string) {
	w.Helper()
	file := filepath.Join(w.node.Dir, "admin")
	if err := w.cluster.Kubeconfig(file, "admin", "system:masters"); err != nil {
		w.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		w.Fatal(err)
	}
	config.TLSClientConfig.Insecure = true
	config.TLSClientConfig.CAFile, config.TLSClientConfig.CAData = "", nil
	transport, err := rest.TransportFor(config)
	if err != nil {
		w.Fatal(err)
	}
	return &http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, fmt.Sprintf("127.0.0.1:%v", w.node.Settings["port"])
}

// ask sends a request with exactly this path, and describes the answer.
func ask(client *http.Client, method, host, path string) (said, text string, err error) {
	r, err := http.NewRequest(method, "https://"+host, nil)
	if err != nil {
		return "", "", err
	}
	r.URL.Opaque = "//" + host + path
	response, err := client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", "", err
	}
	kind := response.Header.Get("Content-Type")
	if is, _, err := mime.ParseMediaType(kind); err == nil {
		kind = is
	}
	said = strings.TrimSpace(fmt.Sprintf("%d %s %s", response.StatusCode, kind,
		response.Header.Get("Location")))
	return said, string(body), nil
}
