package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// tokenLife is the requested lifetime of the pod's token in seconds, the API's minimum.
const tokenLife = 600

// filesPod mounts files of objects in every way.
const filesPod = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {color: red}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed}, immutable: true, data: {color: red}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {color: red}}
---
apiVersion: v1
kind: Pod
metadata: {name: files}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: cfg, configMap: {name: cfg}}
  - {name: fixed, configMap: {name: fixed}}
  - {name: key, secret: {secretName: key}}
  - {name: maybe, configMap: {name: maybe, optional: true}}
  - {name: token, projected: {sources: [{serviceAccountToken: {
      path: token, expirationSeconds: 600}}]}}
  containers:
  - name: main
    image: ` + containerdrig.ShellImage + `
    command: [sleep, "1000000"]
    volumeMounts:
    - {name: cfg, mountPath: /cfg}
    - {name: cfg, mountPath: /once, subPath: color}
    - {name: fixed, mountPath: /fixed}
    - {name: key, mountPath: /key}
    - {name: maybe, mountPath: /maybe}
    - {name: token, mountPath: /token}
`

// testFiles: a running container sees changes of config maps and secrets, and renewed tokens; but
// not in a mount with subPath, and not of immutable objects.
func testFiles(t *testing.T, c rig.Cluster) {
	c.Apply(filesPod)
	c.MustRun("wait", "--for=condition=Ready", "pod/files", "--timeout=1m")
	cat := func(file string) (string, error) {
		return c.Run("exec", "files", "--", "cat", file)
	}
	inside := func(file, want string) {
		t.Helper()
		harness.Eventually(t, file+" inside has "+want, func() error {
			got, err := cat(file)
			if err == nil && got != want {
				err = fmt.Errorf("it has %q", got)
			}
			return err
		})
	}
	for _, file := range []string{"/cfg/color", "/once", "/fixed/color", "/key/color"} {
		inside(file, "red")
	}
	token, err := cat("/token/token")
	if err != nil {
		t.Error(err)
	}
	links := c.MustRun("exec", "files", "--", "ls", "/maybe")
	if links != "" {
		t.Errorf("of an optional config map that is not there, there is %q", links)
	}
	c.MustRun("patch", "configmap", "cfg", "--patch", `{"data": {"color": "green"}}`)
	c.MustRun("patch", "secret", "key", "--patch", `{"stringData": {"color": "green"}}`)
	c.MustRun("create", "configmap", "maybe", "--from-literal=color=green")
	c.MustRun("delete", "configmap", "fixed")
	c.MustRun("create", "configmap", "fixed", "--from-literal=color=green")
	for _, file := range []string{"/cfg/color", "/key/color", "/maybe/color"} {
		inside(file, "green")
	}
	for _, file := range []string{"/once", "/fixed/color"} {
		if got, err := cat(file); got != "red" || err != nil {
			t.Errorf("%s inside has %q, %v", file, got, err)
		}
	}
	c.MustRun("delete", "configmap", "maybe")
	harness.Eventually(t, "another token is inside", func() error {
		now, err := cat("/token/token")
		switch {
		case err != nil:
			return err
		case now == token:
			return fmt.Errorf("it is the first")
		}
		return believed(t, c, now)
	})
	c.MustRun("delete", "pod", "files", "--timeout=1m")
}

// believed returns an error unless the API server accepts a token as the pod's.
func believed(t *testing.T, c rig.Cluster, token string) error {
	review, err := c.Client.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if s := review.Status; !s.Authenticated ||
		s.User.Extra["authentication.kubernetes.io/pod-name"][0] != "files" {
		return fmt.Errorf("the API server says %+v", s)
	}
	return nil
}

// agingTokens makes the agent believe that service account tokens are older than they are, so that
// it renews them after some seconds: the agent connects through a proxy.
func agingTokens(t *testing.T, n rig.Node) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			if isToken(r.Out) {
				r.Out.Header.Set("Accept", "application/json")
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if !isToken(r.Request) || r.StatusCode != http.StatusCreated {
				return nil
			}
			return age(r)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	})
	t.Cleanup(func() {
		n.Kill()
		proxy.CloseClientConnections()
		proxy.Close()
	})
	const name = "proxy"
	if err := clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: proxy.URL}},
		AuthInfos:      map[string]*api.AuthInfo{name: {}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, n.Kubeconfig); err != nil {
		t.Fatal(err)
	}
}

func isToken(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/token")
}

// age changes the expiry in the answer, so that the token's remaining life is some seconds more
// than when agents renew.
func age(r *http.Response) error {
	var answer authenticationv1.TokenRequest
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return err
	}
	left := tokenLife*time.Second/5 + 13*time.Second // either agent renews it some seconds earlier
	answer.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(left))
	if text, err = json.Marshal(answer); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", fmt.Sprint(len(text)))
	return nil
}
