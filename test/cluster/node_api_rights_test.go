package cluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// rights has, by route of the node API, the subresources of nodes of which one is enough; other
// routes need proxy.
var rights = map[string][]string{
	"/healthz": {"healthz", "proxy"}, "/healthz/ping": {"healthz", "proxy"},
	"/pods": {"pods", "proxy"}, "/runningpods/": {"pods", "proxy"},
	"/allocatedPods":                         {"pods", "proxy"},
	"/allocatedPods/{namespace}/{pod}":       {"pods", "proxy"},
	"/allocatedPods/{namespace}/{pod}/{uid}": {"pods", "proxy"},
	"/configz":                               {"configz", "proxy"}, "/flagz": {"configz"}, "/statusz": {"statusz"},
	"/metrics": {"metrics"}, "/metrics/cadvisor": {"metrics"}, "/metrics/probes": {"metrics"},
	"/metrics/resource": {"metrics"}, "/stats/summary": {"stats"}, "/logs/": {"log"},
	"/checkpoint/{namespace}/{pod}/{container}":    {"checkpoint"},
	"/containerLogs/{namespace}/{pod}/{container}": {"proxy"},
	"/exec/{namespace}/{pod}/{container}":          {"proxy"},
	"/exec/{namespace}/{pod}/{uid}/{container}":    {"proxy"},
	"/attach/{namespace}/{pod}/{container}":        {"proxy"},
	"/attach/{namespace}/{pod}/{uid}/{container}":  {"proxy"},
	"/run/{namespace}/{pod}/{container}":           {"proxy"},
	"/run/{namespace}/{pod}/{uid}/{container}":     {"proxy"},
	"/portForward/{namespace}/{pod}":               {"proxy"},
	"/portForward/{namespace}/{pod}/{uid}":         {"proxy"},
	"/debug/pprof/":                                {"proxy"},
	"/debug/pprof/cmdline":                         {"proxy"},
	"/debug/pprof/profile":                         {"proxy"},
	"/debug/pprof/symbol":                          {"proxy"},
	"/debug/pprof/trace":                           {"proxy"},
	"/debug/flags/v":                               {"proxy"},
	"/debug/fit":                                   {"proxy"},
	"/debug/admission/{namespace}/{pod}":           {"proxy"},
	"/devices":                                     {"proxy"},
	"/devices/cordon":                              {"proxy"},
	"/devices/uncordon":                            {"proxy"},
	"/placements":                                  {"proxy"},
	"/plugins":                                     {"proxy"},
	"/drivers":                                     {"proxy"},
	"/csidrivers":                                  {"proxy"},
	"/claims":                                      {"proxy"},
	"/claims/forget":                               {"proxy"},
	"/podresources":                                {"proxy"},
	"/podresources/allocatable":                    {"proxy"},
	"/problems":                                    {"proxy"},
	"/events":                                      {"proxy"},
	"/free":                                        {"proxy"},
	"/machine":                                     {"proxy"},
	"/version":                                     {"proxy"},
	"/":                                            {"proxy"},
	"/none":                                        {"proxy"},
}

// notListed are the routes that statusz, which lists first elements of paths, does not name.
var notListed = []string{"/statusz", "/", "/none"}

// placeholder matches an element of a route's pattern that stands for a name.
var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// asker is a client of the node API.
type asker struct {
	t      *testing.T
	server string
	token  string
}

// TestRights: every route of the node API answers 401 without credentials or with wrong ones; 403
// without the right, or with the right for another verb; and with each sufficient right it answers.
// Routes without a row fail the test, by the first element of their path.
func TestRights(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	c.Join(agent, "rights-node")
	agent.Settings["featureGates"] = map[string]bool{"KubeletAllocatedPodsEndpoint": true}
	agent.Settings["kubeAPIQPS"], agent.Settings["kubeAPIBurst"] = 1000, 1000 // it sends many reviews here
	agent.Start()
	server := fmt.Sprintf("https://127.0.0.1:%v", agent.Settings["port"])
	subresources := map[string]bool{}
	for _, enough := range rights {
		for _, s := range enough {
			subresources[s] = true
		}
	}
	all := slices.Sorted(maps.Keys(subresources))
	users := map[string]asker{
		"": {t, server, ""}, "liar": {t, server, "x.y.z"},
		"nobody": {t, server, account(t, c, "nobody", nil, nil)},
		"reader": {t, server, account(t, c, "reader", []string{"get"}, all)},
	}
	for _, s := range all {
		token := account(t, c, s, []string{"get", "create", "update"}, []string{s})
		users[s] = asker{t, server, token}
	}
	_, text := users["statusz"].ask(http.MethodGet, "/statusz")
	_, text, _ = strings.Cut(text, "Paths")
	listed := slices.DeleteFunc(strings.Fields(text), func(path string) bool {
		return !strings.HasPrefix(path, "/")
	})
	rows := map[string]bool{}
	for pattern := range rights {
		rows["/"+strings.SplitN(pattern, "/", 3)[1]] = true
	}
	for _, root := range slices.Concat(listed, notListed) {
		if !rows[root] {
			t.Errorf("there are routes below %s, and no row here", root)
		}
		delete(rows, root)
	}
	if len(rows) > 0 || len(listed) < 10 {
		t.Errorf("there are rows for %v; statusz lists %q", rows, listed)
	}
	for pattern, enough := range rights {
		path := placeholder.ReplaceAllString(pattern, "x") + "?seconds=1"
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			for name, user := range users {
				code, _ := user.ask(method, path)
				if want := wanted(name, method, enough); code != want &&
					(want != 0 || code == http.StatusUnauthorized || code == http.StatusForbidden) {
					t.Errorf("%s %s of %q: %d, want %d", method, path, name, code, want)
				}
			}
		}
	}
}

// wanted returns the expected code, 0 if access is granted.
func wanted(name, method string, enough []string) int {
	switch {
	case name == "" || name == "liar":
		return http.StatusUnauthorized
	case slices.Contains(enough, name), name == "reader" && method == http.MethodGet:
		return 0
	default:
		return http.StatusForbidden
	}
}

// account creates a service account with rights to subresources of nodes, and returns its token
// once the API server has the rights.
func account(t *testing.T, c rig.Cluster, name string, verbs, subresources []string) string {
	t.Helper()
	full := c.Namespace + "-" + name
	roles, bindings := c.Client.RbacV1().ClusterRoles(), c.Client.RbacV1().ClusterRoleBindings()
	role := &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: full}}
	for _, s := range subresources {
		role.Rules = append(role.Rules, rbac.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"nodes/" + s}, Verbs: verbs})
	}
	_, errRole := roles.Create(t.Context(), role, metav1.CreateOptions{})
	_, errBinding := bindings.Create(t.Context(), &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: full},
		Subjects:   []rbac.Subject{{Kind: "ServiceAccount", Namespace: c.Namespace, Name: name}},
	}, metav1.CreateOptions{})
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(roles.Delete(ctx, full, metav1.DeleteOptions{}),
			bindings.Delete(ctx, full, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(errRole, errBinding); err != nil {
		t.Fatal(err)
	}
	c.MustRun("create", "serviceaccount", name)
	for _, s := range subresources {
		harness.Eventually(t, name+" may use "+s, func() error {
			review, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
				&authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
					User: "system:serviceaccount:" + c.Namespace + ":" + name,
					ResourceAttributes: &authorization.ResourceAttributes{
						Verb: verbs[0], Resource: "nodes", Subresource: s},
				}}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = errors.New("not yet")
			}
			return err
		})
	}
	return strings.TrimSpace(c.MustRun("create", "token", name))
}

// keepingAlive is a client that does not verify the server: this test is about clients.
var keepingAlive = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
}}

// ask returns the code and the text of the answer.
func (a asker) ask(method, path string) (int, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.server+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := keepingAlive.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
