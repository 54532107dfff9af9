package objects

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

func ref(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

// with adds a volume that the first container mounts.
func with(pod *v1.Pod, name string, source v1.VolumeSource) {
	podtest.Mounts(v1.Volume{Name: name, VolumeSource: source})(pod)
}

func secretVolume(name string, keys ...string) v1.VolumeSource {
	s := &v1.SecretVolumeSource{SecretName: name}
	for _, k := range keys {
		s.Items = append(s.Items, v1.KeyToPath{Key: k, Path: k})
	}
	return v1.VolumeSource{Secret: s}
}

func fromSecret(name, key string) v1.EnvVar {
	return v1.EnvVar{Name: "X", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: ref(name), Key: key}}}
}

func fromMap(name, key string) v1.EnvVar {
	return v1.EnvVar{Name: "X", ValueFrom: &v1.EnvVarSource{
		ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref(name), Key: key}}}
}

// A pod lacks what it cannot start without, and not what it can, in the kubelet's words.
func TestLack(t *testing.T) {
	s := newServer(t)
	s.put(configMap("cfg", "1"))
	s.put(secret("pw", "1"))
	o := s.start(Config{})
	x := o.Expected()
	other := func(p *v1.Pod, as *[]v1.Container, env ...v1.EnvVar) {
		*as = append(*as, v1.Container{Name: fmt.Sprint("c", len(p.Spec.Containers)), Env: env})
	}
	for name, test := range map[string]struct {
		change func(p *v1.Pod)
		want   string
	}{
		"nothing is named": {func(*v1.Pod) {}, ""},
		"all is there": {func(p *v1.Pod) {
			with(p, "v", secretVolume("pw", "key"))
			p.Spec.Containers[0].Env = []v1.EnvVar{fromMap("cfg", "key"), fromSecret("pw", "key")}
		}, ""},
		"a secret": {func(p *v1.Pod) { with(p, "v", secretVolume("no")) },
			`volume v: secret "no" not found`},
		"a key of a secret": {func(p *v1.Pod) { with(p, "v", secretVolume("pw", "none")) },
			`volume v: references non-existent secret key: none`},
		"a config map": {func(p *v1.Pod) {
			with(p, "v", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: ref("no")}})
		}, `volume v: configmap "no" not found`},
		"a key of a config map": {func(p *v1.Pod) {
			with(p, "v", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: ref("cfg"), Items: []v1.KeyToPath{{Key: "none"}}}})
		}, `volume v: configmap references non-existent config key: none`},
		"sources of a projection": {func(p *v1.Pod) {
			with(p, "v", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("cfg")}},
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}},
					{Secret: &v1.SecretProjection{LocalObjectReference: ref("no")}}}}})
		}, `volume v: secret "no" not found`},
		"what is optional": {func(p *v1.Pod) {
			with(p, "v", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "no",
				Optional: ptr.To(true)}})
			env := fromSecret("no", "key")
			env.ValueFrom.SecretKeyRef.Optional = ptr.To(true)
			p.Spec.Containers[0].Env = []v1.EnvVar{env}
			p.Spec.ImagePullSecrets = []v1.LocalObjectReference{ref("no")}
		}, ""},
		"a volume that no container uses": {func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: secretVolume("no")}}
		}, ""},
		"environment": {func(p *v1.Pod) {
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("cfg")}},
				{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("no")}}}
		}, `container c: secret "no" not found`},
		"a value": {func(p *v1.Pod) {
			p.Spec.Containers[0].Env = []v1.EnvVar{fromSecret("pw", "none")}
		}, "container c: couldn't find key none in Secret shop/pw"},
		"a value of a config map": {func(p *v1.Pod) {
			p.Spec.Containers[0].Env = []v1.EnvVar{fromMap("cfg", "none")}
		}, "container c: couldn't find key none in ConfigMap shop/cfg"},
		"environment of one of two": {func(p *v1.Pod) {
			p.Spec.Containers[0].Env = []v1.EnvVar{fromSecret("no", "key")}
			other(p, &p.Spec.Containers, fromSecret("pw", "key"))
		}, ""},
		"environment of both": {func(p *v1.Pod) {
			p.Spec.Containers[0].Env = []v1.EnvVar{fromSecret("no", "key")}
			other(p, &p.Spec.Containers, fromMap("no", "key"))
		}, `container c: secret "no" not found`},
		"what an init container may make": {func(p *v1.Pod) {
			p.Spec.Containers[0].Env = []v1.EnvVar{fromSecret("no", "key")}
			other(p, &p.Spec.InitContainers, fromSecret("pw", "key"))
		}, ""},
		"environment of the first init container": {func(p *v1.Pod) {
			other(p, &p.Spec.InitContainers, fromSecret("no", "key"))
		}, `container c1: secret "no" not found`},
		"a volume, whatever can start": {func(p *v1.Pod) {
			other(p, &p.Spec.InitContainers)
			with(p, "v", secretVolume("no"))
		}, `volume v: secret "no" not found`},
		"too much": {func(p *v1.Pod) {
			for i := range maxPerPod + 1 {
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env,
					fromSecret(fmt.Sprint("s", i), "key"))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refuse = http.StatusForbidden // none of them is known
		}, `container c: secret "s500": the pod uses more than 500 config maps and secrets; put ` +
			`their data together`},
	} {
		t.Run(name, func(t *testing.T) {
			s.mu.Lock()
			s.refuse = 0
			s.mu.Unlock()
			p := podNamed(name)
			test.change(p)
			x.Expect(p)
			defer x.Dismiss(p.UID)
			if lack := x.Lack(p); test.want == "" && lack != nil && !lack.Unknown() {
				t.Errorf("before it is known it lacks %v", lack)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			x.Look(ctx, p)
			got := ""
			if lack := x.Lack(p); lack != nil {
				got = fmt.Sprintf("volume %s: %v", lack.Volume, lack.Err)
				if lack.Container != "" {
					got = fmt.Sprintf("container %s: %v", lack.Container, lack.Err)
				}
				if lack.Unknown() {
					got = "unknown " + got
				}
			}
			if got != test.want {
				t.Errorf("it lacks %q, want %q", got, test.want)
			}
		})
	}
	if len(o.follower.entries)+len(o.follower.uses)+len(x.looked) != 0 {
		t.Errorf("left are %v, %v, %v", o.follower.entries, o.follower.uses, x.looked)
	}
}

// However many pods wait for an object, and use it already, it is followed by one watch; each is told
// when it comes, changes or goes. The watch ends with the last of them.
func TestManyPodsLackOneObject(t *testing.T) {
	s := newServer(t)
	var arrived, changed reports
	o := s.start(Config{Arrived: arrived.tell, Changed: changed.tell})
	x := o.Expected()
	var pods []*v1.Pod
	for i := range 110 {
		p := podNamed(fmt.Sprint(i))
		with(p, "v", secretVolume("pw"))
		pods = append(pods, p)
		x.Expect(p)
	}
	uses := podNamed("uses")
	if _, err := o.Secret(t.Context(), uses, "pw"); err == nil {
		t.Fatal("the secret is there")
	}
	missing := func() (n int) {
		for _, p := range pods {
			if lack := x.Lack(p); lack != nil && !lack.Unknown() {
				n++
			}
		}
		return n
	}
	eventually(t, "all lack it", func() bool { return missing() == len(pods) })
	s.put(secret("pw", "1"))
	eventually(t, "all are told", func() bool { return len(arrived.take()) == len(pods) })
	if n := missing(); n != 0 {
		t.Errorf("%d lack it when it is there", n)
	}
	s.remove(secret("pw", ""))
	eventually(t, "all are told", func() bool { return len(arrived.take()) == len(pods) })
	if n := missing(); n != len(pods) {
		t.Errorf("%d lack it when it is gone", n)
	}
	if n := s.count("secrets/shop/pw"); n != 1 || s.watching("") != 1 ||
		s.count("GET secrets/shop/pw") != 0 {
		t.Errorf("%d watches were opened, %d are open", n, s.watching(""))
	}
	if got := changed.take(); len(got) != 1 || got[0] != uses.UID {
		t.Errorf("%q were told as if they ran", got)
	}
	for _, p := range pods {
		x.Dismiss(p.UID)
	}
	if s.watching("") != 1 {
		t.Error("the watch ended before the last")
	}
	o.Release(uses.UID)
	eventually(t, "the watch ends", func() bool { return s.watching("") == 0 })
}

// What the API server refuses to tell is unknown, not missing.
func TestLackUnknown(t *testing.T) {
	s := newServer(t)
	s.cut(http.StatusForbidden)
	var arrived reports
	x := s.start(Config{Arrived: arrived.tell}).Expected()
	p := podNamed("a")
	with(p, "v", secretVolume("pw"))
	x.Expect(p)
	x.Look(t.Context(), p)
	lack := x.Lack(p)
	if lack == nil || !lack.Unknown() ||
		!strings.HasPrefix(lack.Err.Error(), "failed to sync secret cache: refused by the test") {
		t.Fatalf("it lacks %+v", lack)
	}
	s.cut(0)
	eventually(t, "it is told", func() bool { return len(arrived.take()) == 1 })
	if lack := x.Lack(p); lack == nil || lack.Unknown() {
		t.Errorf("it lacks %+v", lack)
	}
}

// Without watches an object is read for each pod: what was missing before may be there.
func TestLackWithoutWatch(t *testing.T) {
	for _, strategy := range []kubeletconfig.ResourceChangeDetectionStrategy{
		kubeletconfig.GetChangeDetectionStrategy, kubeletconfig.TTLCacheChangeDetectionStrategy,
	} {
		s := newServer(t)
		x := s.start(Config{Strategy: strategy, Period: time.Hour}).Expected()
		first, second := podNamed("first"), podNamed("second")
		for _, p := range []*v1.Pod{first, second} {
			with(p, "v", secretVolume("pw"))
		}
		x.Expect(first)
		x.Look(t.Context(), first)
		if lack := x.Lack(first); lack == nil || lack.Unknown() {
			t.Errorf("%s: the first lacks %+v", strategy, lack)
		}
		s.put(secret("pw", "1"))
		x.Expect(second)
		if lack := x.Lack(second); lack == nil || !lack.Unknown() {
			t.Errorf("%s: before it is read the second lacks %+v", strategy, lack)
		}
		x.Look(t.Context(), second)
		for _, p := range []*v1.Pod{first, second} {
			if lack := x.Lack(p); lack != nil {
				t.Errorf("%s: %s lacks %+v", strategy, p.Name, lack)
			}
		}
	}
}
