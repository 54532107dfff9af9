package cri

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

func refTo(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func fromMapKey(name, object, key string, optional bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{
		ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: refTo(object), Key: key,
			Optional: &optional}}}
}

func fromSecretKey(name, object, key string, optional bool) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{
		SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: refTo(object), Key: key,
			Optional: &optional}}}
}

func fromMap(prefix, object string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
		LocalObjectReference: refTo(object), Optional: &optional}}
}

func fromSecret(object string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{
		LocalObjectReference: refTo(object), Optional: &optional}}
}

func testObjects() *Objects {
	service := func(name, ip string, ports ...v1.ServicePort) *v1.Service {
		return &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
	}
	return &Objects{
		ConfigMaps: map[string]*v1.ConfigMap{"cfg": {
			Data: map[string]string{"A": "map", "B": "b", "a.b-c": "dots", "REF": "$(B)"}}},
		Secrets: map[string]*v1.Secret{"key": {Data: map[string][]byte{
			"A": []byte("secret"), "S": []byte("s")}}},
		Services: []*v1.Service{
			service("headless", v1.ClusterIPNone, v1.ServicePort{Port: 1}),
			service("no-ip", "", v1.ServicePort{Port: 1}),
			service("no-ports", "10.0.0.9"),
			service("web-ui", "fd00::1", v1.ServicePort{Name: "dns-tcp", Port: 53,
				Protocol: v1.ProtocolUDP}, v1.ServicePort{Port: 80}),
		},
	}
}

// A later source replaces an earlier one, and the spec's variables can refer to all of them.
func TestEnvOfObjects(t *testing.T) {
	c := &v1.Container{Name: "c",
		EnvFrom: []v1.EnvFromSource{fromMap("", "cfg", false), fromSecret("key", false),
			fromMap("P_", "cfg", false), fromMap("", "none", true), fromSecret("none", true), {}},
		Env: []v1.EnvVar{
			{Name: "OWN", Value: "$(A) $(P_A) $(WEB_UI_SERVICE_HOST) $(DEV) $(NONE)"},
			fromMapKey("K", "cfg", "B", false), fromSecretKey("L", "key", "S", false),
			fromMapKey("M", "cfg", "none", true), fromMapKey("N", "none", "A", true),
			fromSecretKey("O", "key", "none", true), fromSecretKey("Q", "none", "A", true),
			{Name: "A", Value: "$(A)-own"}, {Name: "LAST", Value: "$(A)$(K)$(L)$(M)"},
		}}
	got, err := Env(&v1.Pod{}, c, ContainerOptions{Objects: testObjects(),
		Devices: []*v1beta1.ContainerAllocateResponse{{Envs: map[string]string{"DEV": "d"}}}})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range got {
		lines = append(lines, e.Key+"="+string(e.Value))
	}
	want := []string{
		"DEV=d",
		"WEB_UI_SERVICE_HOST=fd00::1", "WEB_UI_SERVICE_PORT=53", "WEB_UI_SERVICE_PORT_DNS_TCP=53",
		"WEB_UI_PORT=udp://[fd00::1]:53", "WEB_UI_PORT_53_UDP=udp://[fd00::1]:53",
		"WEB_UI_PORT_53_UDP_PROTO=udp", "WEB_UI_PORT_53_UDP_PORT=53",
		"WEB_UI_PORT_53_UDP_ADDR=fd00::1", "WEB_UI_PORT_80_TCP=tcp://[fd00::1]:80",
		"WEB_UI_PORT_80_TCP_PROTO=tcp", "WEB_UI_PORT_80_TCP_PORT=80",
		"WEB_UI_PORT_80_TCP_ADDR=fd00::1",
		"A=secret", "B=b", "REF=$(B)", "a.b-c=dots", "S=s",
		"P_A=map", "P_B=b", "P_REF=$(B)", "P_a.b-c=dots",
		"OWN=secret map fd00::1 $(DEV) $(NONE)", "K=b", "L=s", "A=secret-own",
		"LAST=secret-ownbs$(M)",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error("-want +got:\n", diff)
	}
}

// The error names the missing object as the kubelet does, and is an ObjectError, since the object
// may still be created.
func TestEnvOfMissingObjects(t *testing.T) {
	pod := podtest.New("ns/p")
	for want, c := range map[string]v1.Container{
		`configmap "none" not found`: {EnvFrom: []v1.EnvFromSource{fromMap("", "none", false)}},
		`secret "none" not found`:    {EnvFrom: []v1.EnvFromSource{fromSecret("none", false)}},
		`configmap "no" not found`:   {Env: []v1.EnvVar{fromMapKey("X", "no", "A", false)}},
		`secret "no" not found`:      {Env: []v1.EnvVar{fromSecretKey("X", "no", "A", false)}},
		`couldn't find key none in ConfigMap ns/cfg`: {
			Env: []v1.EnvVar{fromMapKey("X", "cfg", "none", false)}},
		`couldn't find key none in Secret ns/key`: {
			Env: []v1.EnvVar{fromSecretKey("X", "key", "none", false)}},
	} {
		_, err := Env(pod, &c, ContainerOptions{Objects: testObjects()})
		var why *StartError
		var lacks *ObjectError
		if !errors.As(err, &why) || why.Reason != ReasonCreateContainerConfig ||
			!errors.As(err, &lacks) || lacks.Error() != want ||
			!strings.HasSuffix(why.Message, want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := Env(pod, &c, ContainerOptions{}); err == nil ||
			!strings.Contains(err.Error(), "cannot be read without an API server") {
			t.Errorf("without an API server: %v", err)
		}
	}
}

// Services and objects count towards the bound as the spec's own variables do.
func TestEnvOfLargeObjects(t *testing.T) {
	o := testObjects()
	o.ConfigMaps["cfg"].Data["BIG"] = strings.Repeat("x", MaxArguments)
	c := &v1.Container{EnvFrom: []v1.EnvFromSource{fromMap("", "cfg", false)}}
	_, err := Env(&v1.Pod{}, c, ContainerOptions{Objects: o})
	var long *TooLongError
	if !errors.As(err, &long) || long.Field != "envFrom" ||
		!strings.Contains(long.Why, `"BIG"`) {
		t.Errorf("got %v", err)
	}
	c.EnvFrom[0].ConfigMapRef.Optional = ptr.To(true)
	c.EnvFrom[0].ConfigMapRef.Name = "none"
	if _, err := Env(&v1.Pod{}, c, ContainerOptions{Objects: o}); err != nil {
		t.Error(err)
	}
}

// Too large an environment is never built in memory: each variable is charged when it is added, and
// the text that is read for replaced variables is bounded too.
func TestEnvIsBoundedWhileItIsMade(t *testing.T) {
	const many = 9000
	o := testObjects()
	o.ConfigMaps["big"] = &v1.ConfigMap{Data: map[string]string{}}
	o.Secrets["big"] = &v1.Secret{Data: map[string][]byte{}}
	for i := range 5000 {
		o.ConfigMaps["big"].Data[fmt.Sprint("K", i)] = "v"
		o.Secrets["big"].Data[fmt.Sprint("K", i)] = []byte("v")
	}
	pod := podtest.New("", podtest.Annotations("a", strings.Repeat("x", 250<<10)))
	var prefixed, same, secrets v1.Container
	var names, annotations v1.Container
	for i := range many {
		prefixed.EnvFrom = append(prefixed.EnvFrom, fromMap(fmt.Sprint("P", i), "big", false))
		same.EnvFrom = append(same.EnvFrom, fromMap("", "big", false))
		secrets.EnvFrom = append(secrets.EnvFrom, fromSecret("big", false))
		names.Env = append(names.Env, field(fmt.Sprint("N", i), "metadata.name"))
		annotations.Env = append(annotations.Env, field(fmt.Sprint("N", i), "metadata.annotations"))
	}
	for name, test := range map[string]struct {
		container v1.Container
		long      string // the field that is too long; "" for none
	}{
		"a config map under many prefixes":    {prefixed, "envFrom"},
		"a config map again and again":        {same, "envFrom"},
		"a secret again and again":            {secrets, "envFrom"},
		"small fields beside big annotations": {names, ""},
		"all annotations again and again":     {annotations, "env[4]"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Env(pod, &test.container, ContainerOptions{Objects: o})
			runtime.ReadMemStats(&after)
			var long *TooLongError
			if errors.As(err, &long) != (test.long != "") || long != nil && long.Field != test.long {
				t.Errorf("got %v", err)
			}
			if all := after.TotalAlloc - before.TotalAlloc; all > 8*maxRead {
				t.Errorf("%d MiB were made for it", all>>20)
			}
		})
	}
}
