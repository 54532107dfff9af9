package objects

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

func podNamed(name string) *v1.Pod {
	return podtest.New("shop/"+name, podtest.UID("uid-"+name), podtest.Containers("c"),
		podtest.Source(podspec.APISource), func(p *v1.Pod) {
			p.Spec.ServiceAccountName, p.Spec.EnableServiceLinks = "clerk", new(true)
		})
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Data: map[string]string{"key": value}}
}

func secret(name, value string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Data: map[string][]byte{"key": []byte(value)}}
}

// told remembers which pods were named to Changed.
type reports struct {
	mu   sync.Mutex
	pods []types.UID
}

func (c *reports) tell(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = append(c.pods, pod)
}

func (c *reports) take() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.pods
	c.pods = nil
	slices.Sort(pods)
	return pods
}

// One watch follows an object for all pods, from the first that asks to the last that is released.
func TestOneWatchForAllPods(t *testing.T) {
	s := newServer(t)
	s.put(configMap("cfg", "1"))
	s.put(configMap("other", "x"))
	var changed reports
	o := s.start(Config{Changed: changed.tell})
	a, b := podNamed("a"), podNamed("b")
	for _, pod := range []*v1.Pod{a, b} {
		for range 2 {
			got, err := o.ConfigMap(t.Context(), pod, "cfg")
			if err != nil || got.Data["key"] != "1" {
				t.Fatalf("got %v, %v", got, err)
			}
		}
	}
	const path = "configmaps/shop/cfg"
	if n := s.count(path); n != 1 || s.watching("") != 1 || s.count("GET "+path) != 0 {
		t.Errorf("%d watches were opened, %d are open", n, s.watching(""))
	}
	if got := changed.take(); len(got) != 0 {
		t.Errorf("%q were told of what they asked for", got)
	}
	s.put(configMap("cfg", "2"))
	eventually(t, "both pods are told", func() bool {
		return slices.Equal(changed.take(), []types.UID{"uid-a", "uid-b"})
	})
	if got, err := o.ConfigMap(t.Context(), a, "cfg"); err != nil || got.Data["key"] != "2" {
		t.Errorf("got %v, %v", got, err)
	}
	s.put(configMap("cfg", "3"))
	eventually(t, "the one that asked again is told", func() bool {
		return slices.Equal(changed.take(), []types.UID{"uid-a"})
	})
	o.Release(a.UID)
	if s.watching(path) != 1 {
		t.Error("the watch ended with the first pod")
	}
	o.Release(b.UID)
	o.Release(b.UID)
	eventually(t, "the watch ends with the last", func() bool { return s.watching("") == 0 })
	if len(o.follower.entries) != 0 || len(o.follower.uses) != 0 {
		t.Errorf("left are %v and %v", o.follower.entries, o.follower.uses)
	}
}

// What a pod lacks is an error that says so; when it comes the pod is told.
func TestMissingObject(t *testing.T) {
	s := newServer(t)
	var changed reports
	o := s.start(Config{Changed: changed.tell})
	pod := podNamed("a")
	_, err := o.Secret(t.Context(), pod, "key")
	var lacks *cri.ObjectError
	if !errors.As(err, &lacks) || !apierrors.IsNotFound(err) ||
		err.Error() != `secret "key" not found` {
		t.Fatalf("got %v", err)
	}
	s.put(secret("key", "1"))
	eventually(t, "the pod is told", func() bool { return len(changed.take()) == 1 })
	if got, err := o.Secret(t.Context(), pod, "key"); err != nil || string(got.Data["key"]) != "1" {
		t.Errorf("got %v, %v", got, err)
	}
	s.remove(secret("key", ""))
	eventually(t, "the pod is told", func() bool { return len(changed.take()) == 1 })
	if _, err := o.Secret(t.Context(), pod, "key"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// An API server that refuses or is away delays a pod for a bounded time; what is known stays.
func TestServerAway(t *testing.T) {
	s := newServer(t)
	s.put(configMap("known", "1"))
	var changed reports
	o := s.start(Config{Wait: 3 * time.Second, Changed: changed.tell})
	pod := podNamed("a")
	if _, err := o.ConfigMap(t.Context(), pod, "known"); err != nil {
		t.Fatal(err)
	}
	s.cut(http.StatusForbidden)
	_, err := o.ConfigMap(t.Context(), pod, "cfg")
	if err == nil || apierrors.IsNotFound(err) ||
		!strings.HasPrefix(err.Error(), "failed to sync configmap cache: refused by the test") {
		t.Errorf("got %v", err)
	}
	if got, err := o.ConfigMap(t.Context(), pod, "known"); err != nil || got.Data["key"] != "1" {
		t.Errorf("while the API server refuses, got %v, %v", got, err)
	}
	s.put(configMap("cfg", "1"))
	s.cut(0)
	eventually(t, "the pod is told", func() bool { return len(changed.take()) > 0 })
	if got, err := o.ConfigMap(t.Context(), pod, "cfg"); err != nil || got.Data["key"] != "1" {
		t.Errorf("got %v, %v", got, err)
	}
}

// Without an answer, and before Run, one who asks waits as long as it wants to.
func TestNoAnswer(t *testing.T) {
	o := New(Config{Client: newServer(t).client})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := o.ConfigMap(ctx, podNamed("a"), "cfg")
	const want = "failed to sync configmap cache: timed out waiting for the condition"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What is immutable is not followed once it is known.
func TestImmutable(t *testing.T) {
	s := newServer(t)
	fixed := configMap("cfg", "1")
	fixed.Immutable = ptr.To(true)
	s.put(fixed)
	o := s.start(Config{})
	for _, pod := range []*v1.Pod{podNamed("a"), podNamed("b")} {
		if _, err := o.ConfigMap(t.Context(), pod, "cfg"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the watch ends", func() bool { return s.watching("") == 0 })
	if n := s.count("configmaps/shop/cfg"); n != 1 {
		t.Errorf("%d watches were opened", n)
	}
}

// The other two strategies read objects, and tell of changes too.
func TestStrategiesWithoutWatch(t *testing.T) {
	for _, strategy := range []kubeletconfig.ResourceChangeDetectionStrategy{
		kubeletconfig.GetChangeDetectionStrategy, kubeletconfig.TTLCacheChangeDetectionStrategy,
	} {
		s := newServer(t)
		s.put(configMap("cfg", "1"))
		var changed reports
		o := s.start(Config{Strategy: strategy, Period: 10 * time.Millisecond,
			Changed: changed.tell})
		pod := podNamed("a")
		if got, err := o.ConfigMap(t.Context(), pod, "cfg"); err != nil || got.Data["key"] != "1" {
			t.Fatalf("%s: got %v, %v", strategy, got, err)
		}
		s.put(configMap("cfg", "2"))
		eventually(t, "the pod is told", func() bool { return len(changed.take()) > 0 })
		if got, err := o.ConfigMap(t.Context(), pod, "cfg"); err != nil || got.Data["key"] != "2" {
			t.Errorf("%s: got %v, %v", strategy, got, err)
		}
		if s.count("configmaps/shop/cfg") != 0 {
			t.Errorf("%s: a watch was opened", strategy)
		}
		o.Release(pod.UID)
	}
}

// A pod that begins is told of what changed just before, whatever the strategy has in memory.
func TestFreshForEachPod(t *testing.T) {
	for _, strategy := range []kubeletconfig.ResourceChangeDetectionStrategy{
		kubeletconfig.GetChangeDetectionStrategy, kubeletconfig.TTLCacheChangeDetectionStrategy,
	} {
		s := newServer(t)
		s.put(configMap("cfg", "1"))
		o := s.start(Config{Strategy: strategy, Period: time.Hour})
		for i := range 3 {
			s.put(configMap("cfg", fmt.Sprint(i)))
			got, err := o.ConfigMap(t.Context(), podNamed(fmt.Sprint(i)), "cfg")
			if err != nil || got.Data["key"] != fmt.Sprint(i) {
				t.Errorf("%s: pod %d got %v, %v", strategy, i, got, err)
			}
		}
	}
}

// What is larger than the API lets it be is refused, and not kept.
func TestTooLarge(t *testing.T) {
	s := newServer(t)
	s.put(configMap("cfg", strings.Repeat("x", maxObject+1)))
	o := s.start(Config{})
	_, err := o.ConfigMap(t.Context(), podNamed("a"), "cfg")
	if err == nil || err.Error() != `configmap "cfg" has 1048577 bytes of data; at most 1048576 `+
		`are taken` {
		t.Errorf("got %v", err)
	}
	s.put(configMap("cfg", strings.Repeat("x", maxObject)))
	eventually(t, "it is taken again", func() bool {
		_, err := o.ConfigMap(t.Context(), podNamed("a"), "cfg")
		return err == nil
	})
}

// A pod that names very many objects is refused with as many watches as one may have.
func TestTooManyObjects(t *testing.T) {
	o := New(Config{Client: newServer(t).client})
	pod := podNamed("greedy")
	for i := range maxPerPod + 1 {
		pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom, v1.EnvFromSource{
			ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{
				Name: fmt.Sprint(i)}}})
	}
	const want = `configmap "500": the pod uses more than 500 config maps and secrets; put their ` +
		`data together`
	if err := o.Begin(pod); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(o.follower.entries) != maxPerPod {
		t.Errorf("%d objects are followed", len(o.follower.entries))
	}
	o.Release(pod.UID)
	if len(o.follower.entries) != 0 {
		t.Errorf("%d objects are followed for nobody", len(o.follower.entries))
	}
}

// All that a pod names is followed from its begin.
func TestBegin(t *testing.T) {
	s := newServer(t)
	o := s.start(Config{})
	pod := podNamed("a")
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	pod.Spec.Volumes = []v1.Volume{
		{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: ref("a")}}},
		{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "b"}}},
		{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("c")}},
				{Secret: &v1.SecretProjection{LocalObjectReference: ref("d")}},
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}}}}}},
	}
	pod.Spec.InitContainers = []v1.Container{{Name: "i", Env: []v1.EnvVar{
		{Value: "x"},
		{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: ref("e")}}},
		{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
			LocalObjectReference: ref("f")}}}}}}
	pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
		{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("g")}},
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("h")}},
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("h")}}}
	if err := o.Begin(pod); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each is watched", func() bool { return s.watching("") == 8 })
	for _, path := range []string{"configmaps/shop/a", "secrets/shop/b", "configmaps/shop/c",
		"secrets/shop/d", "configmaps/shop/e", "secrets/shop/f", "configmaps/shop/g",
		"secrets/shop/h"} {
		if s.watching(path) != 1 {
			t.Errorf("%s has %d watches", path, s.watching(path))
		}
	}
}

// The environment has what is there; what a pod is told of services is theirs to decide with links.
func TestEnvironment(t *testing.T) {
	s := newServer(t)
	s.put(configMap("cfg", "1"))
	service := func(namespace, name string) *v1.Service {
		return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"large": "x"}},
			Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []v1.ServicePort{{Port: 80}}}}
	}
	for _, one := range []*v1.Service{service("default", "kubernetes"), service("default", "other"),
		service("shop", "web"), service("else", "web")} {
		s.put(one)
	}
	o := s.start(Config{})
	pod := podNamed("a")
	ref := func(name string) v1.EnvVar {
		return v1.EnvVar{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: name}}}}
	}
	pod.Spec.Containers[0].Env = []v1.EnvVar{ref("cfg"), ref("none"), ref("cfg")}
	names := func() string {
		t.Helper()
		got, err := o.Environment(t.Context(), pod, &pod.Spec.Containers[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(got.ConfigMaps) != 1 || got.ConfigMaps["cfg"] == nil || len(got.Secrets) != 0 {
			t.Errorf("got %v and %v", got.ConfigMaps, got.Secrets)
		}
		var out []string
		for _, one := range got.Services {
			out = append(out, one.Namespace+"/"+one.Name)
		}
		return strings.Join(out, " ")
	}
	if got := names(); got != "default/kubernetes shop/web" {
		t.Errorf("with links: %s", got)
	}
	pod.Spec.EnableServiceLinks = ptr.To(false)
	if got := names(); got != "default/kubernetes" {
		t.Errorf("without links: %s", got)
	}
	pod.Spec.EnableServiceLinks = ptr.To(true)
	s.put(service("shop", "kubernetes"))
	eventually(t, "its own takes the other's place", func() bool {
		return names() == "shop/kubernetes shop/web"
	})
	s.remove(service("shop", "web"))
	eventually(t, "one is gone", func() bool { return names() == "shop/kubernetes" })
	s.cut(0)
	eventually(t, "the watch comes back", func() bool { return s.count("services/") > 1 })
	if got := names(); got != "shop/kubernetes" {
		t.Errorf("after a watch that was cut: %s", got)
	}
	if s.watching("services/shop/x") > 1 {
		t.Error("services are watched more than once")
	}
	pod.Spec.EnableServiceLinks = nil
	if _, err := o.Environment(t.Context(), pod, &pod.Spec.Containers[0]); err == nil ||
		!strings.Contains(err.Error(), "nil pod.spec.enableServiceLinks encountered") {
		t.Errorf("got %v", err)
	}
}

// A pod of the API server waits for services; a static one takes what is known.
func TestServicesUnknown(t *testing.T) {
	o := New(Config{Client: newServer(t).client, Wait: 10 * time.Millisecond})
	pod := podNamed("a")
	const want = "services have not yet been read at least once, cannot construct envvars"
	_, err := o.Environment(t.Context(), pod, &pod.Spec.Containers[0])
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	podtest.Source(source.FileSource)(pod)
	if got, err := o.Environment(t.Context(), pod, &pod.Spec.Containers[0]); err != nil ||
		len(got.Services) != 0 {
		t.Errorf("a static pod got %v, %v", got, err)
	}
}

func TestPullSecrets(t *testing.T) {
	s := newServer(t)
	s.put(secret("one", "x"))
	o := s.start(Config{})
	pod := podNamed("a")
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "one"}, {Name: "two"}}
	found, missing := o.PullSecrets(t.Context(), pod)
	if len(found) != 1 || found[0].Name != "one" || !slices.Equal(missing, []string{"two"}) {
		t.Errorf("found %v, missing %v", found, missing)
	}
}

// A token is bound to the pod, asked for once for each audience and life, and forgotten with it.
func TestTokens(t *testing.T) {
	s := newServer(t)
	o := s.start(Config{})
	pod := podNamed("a")
	ask := func(want v1.ServiceAccountTokenProjection) string {
		t.Helper()
		text, renew, err := o.Token(t.Context(), pod, &want)
		if err != nil || renew.Before(time.Now().Add(40*time.Minute)) ||
			renew.After(time.Now().Add(48*time.Minute)) {
			t.Fatalf("%q is to be renewed at %v, %v", text, renew, err)
		}
		return string(text)
	}
	plain := v1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607)}
	for range 2 {
		if got := ask(plain); got != "token 1" {
			t.Errorf("got %s", got)
		}
	}
	if got := ask(v1.ServiceAccountTokenProjection{Audience: "vault"}); got != "token 2" {
		t.Errorf("got %s", got)
	}
	first, second := s.tokens[0], s.tokens[1]
	if first.Name != "clerk" || *first.Spec.ExpirationSeconds != 3607 ||
		len(first.Spec.Audiences) != 0 || *second.Spec.ExpirationSeconds != 3600 ||
		!slices.Equal(second.Spec.Audiences, []string{"vault"}) {
		t.Errorf("asked for %v, %v", first, second)
	}
	if ref := first.Spec.BoundObjectRef; ref.Kind != "Pod" || ref.APIVersion != "v1" ||
		ref.Name != "a" || ref.UID != "uid-a" {
		t.Errorf("bound to %v", ref)
	}
	o.Release(pod.UID)
	if len(o.tokens.pods) != 0 {
		t.Error("tokens are kept of a pod that is gone")
	}
	if got := ask(plain); got != "token 3" {
		t.Errorf("got %s", got)
	}
}

// A token that cannot be replaced is good until it expires.
func TestTokenRenewal(t *testing.T) {
	s := newServer(t)
	o := s.start(Config{})
	pod, want := podNamed("a"), &v1.ServiceAccountTokenProjection{}
	k := tokenKey{"", defaultTokenSeconds}
	now := time.Now()
	o.tokens.put(pod.UID, k, token{[]byte("old"), now.Add(-time.Second), now.Add(time.Hour)})
	s.cut(http.StatusForbidden)
	text, renew, err := o.Token(t.Context(), pod, want)
	if err != nil || string(text) != "old" || renew.After(now.Add(2*tokenRetry)) {
		t.Errorf("got %q until %v, %v", text, renew, err)
	}
	o.tokens.put(pod.UID, k, token{[]byte("old"), now.Add(-time.Second), now.Add(-time.Second)})
	_, _, err = o.Token(t.Context(), pod, want)
	if err == nil || err.Error() != "failed to fetch token: refused by the test" {
		t.Errorf("with a token that has expired, got %v", err)
	}
	s.cut(0)
	if text, _, err = o.Token(t.Context(), pod, want); err != nil || string(text) != "token 1" {
		t.Errorf("got %q, %v", text, err)
	}
}

// The API server's authorizer, and what makes tokens there, hear of a new pod a little later than the
// node: the pod waits for that without a word.
func TestTokenOfANewPod(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound} {
		s := newServer(t)
		o := s.start(Config{})
		s.cut(code)
		defer time.AfterFunc(5*firstInsist, func() { s.cut(0) }).Stop()
		text, _, err := o.Token(t.Context(), podNamed("a"), &v1.ServiceAccountTokenProjection{})
		if err != nil || string(text) != "token 1" {
			t.Errorf("%d: got %q, %v", code, text, err)
		}
	}
}

func TestRenewal(t *testing.T) {
	begin := time.Now()
	for life, want := range map[time.Duration]time.Duration{
		time.Hour: 48 * time.Minute, 10 * time.Minute: 8 * time.Minute,
		30 * time.Hour: 24 * time.Hour, 365 * 24 * time.Hour: 24 * time.Hour,
	} {
		if got := renewal(begin.Add(life), life).Sub(begin); got != want {
			t.Errorf("a token for %v is renewed after %v, want %v", life, got, want)
		}
	}
}

// Trust anchors are those of one bundle, or of all of a signer, each certificate once.
func TestTrustAnchors(t *testing.T) {
	s := newServer(t)
	certificate := func(text string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
	}
	bundle := func(name, signer string, certificates ...string) certificatesv1.ClusterTrustBundle {
		return certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer,
				TrustBundle: "a comment\n" + strings.Join(certificates, "")}}
	}
	s.bundles = []certificatesv1.ClusterTrustBundle{
		bundle("x", "", certificate("B"), certificate("A")),
		bundle("y", "who", certificate("B"), certificate("C")),
		bundle("z", "who", certificate("A"), certificate("C")),
	}
	o := s.start(Config{})
	name, signer := func(n string) *v1.ClusterTrustBundleProjection {
		return &v1.ClusterTrustBundleProjection{Name: &n}
	}, func(n string, labels *metav1.LabelSelector) *v1.ClusterTrustBundleProjection {
		return &v1.ClusterTrustBundleProjection{SignerName: &n, LabelSelector: labels}
	}
	for _, test := range []struct {
		want *v1.ClusterTrustBundleProjection
		got  string
		err  string
	}{
		{name("x"), certificate("A") + certificate("B"), ""},
		{signer("who", &metav1.LabelSelector{}),
			certificate("A") + certificate("B") + certificate("C"), ""},
		{signer("who", nil), "", "combination of signerName and labelSelector matched zero"},
		{name("none"), "", `clustertrustbundles.certificates.k8s.io "none" not found`},
		{&v1.ClusterTrustBundleProjection{}, "", "requires either name or signerName"},
	} {
		got, again, err := o.TrustAnchors(t.Context(), test.want)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
			continue
		}
		if err != nil || string(got) != test.got || again.IsZero() {
			t.Errorf("got %s until %v, %v; want %s", got, again, err, test.got)
		}
	}
	asked := s.count("bundles")
	_, _, err := o.TrustAnchors(t.Context(), name("x"))
	if err != nil || s.count("bundles") != asked {
		t.Errorf("asked for again: %v", err)
	}
	optional := name("none")
	optional.Optional = ptr.To(true)
	if got, _, err := o.TrustAnchors(t.Context(), optional); err != nil || len(got) != 0 {
		t.Errorf("got %q, %v", got, err)
	}
}
