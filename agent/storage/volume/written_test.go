package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

// server has the objects that a test put there.
type server struct {
	maps    map[string]*v1.ConfigMap
	secrets map[string]*v1.Secret
	renew   time.Time
	asked   func() // before each answer; nil: nothing
}

func (s *server) ConfigMap(_ context.Context, _ *v1.Pod, name string) (*v1.ConfigMap, error) {
	if s.asked != nil {
		s.asked()
	}
	if c, has := s.maps[name]; has {
		return c, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

func (s *server) Secret(_ context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
	if c, has := s.secrets[name]; has {
		return c, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
}

func (s *server) Token(_ context.Context, pod *v1.Pod, want *v1.ServiceAccountTokenProjection) (
	[]byte, time.Time, error) {
	return fmt.Appendf(nil, "token of %s for %q", pod.Name, want.Audience), s.renew, nil
}

func (s *server) TrustAnchors(context.Context, *v1.ClusterTrustBundleProjection) (
	[]byte, time.Time, error) {
	return []byte("anchors"), time.Time{}, nil
}

func (s *server) Certificate(_ context.Context, _ *v1.Pod, want *v1.PodCertificateProjection) (
	key, chain []byte, again time.Time, err error) {
	return []byte("key "), []byte("chain of " + want.SignerName), s.renew, nil
}

func newServer() *server {
	return &server{
		maps: map[string]*v1.ConfigMap{"cfg": {
			Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"c": {3}},
		}},
		secrets: map[string]*v1.Secret{"key": {Data: map[string][]byte{"k": []byte("s3cret")}}},
	}
}

func configMapVolume(s v1.ConfigMapVolumeSource) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &s}}
}

func secretVolume(s v1.SecretVolumeSource) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &s}}
}

func projectedVolume(sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: sources},
	}}
}

// contents returns the files, with modes, that a reader of the pod's only volume finds.
func contents(t *testing.T, v *Volumes, pod *v1.Pod) []string {
	t.Helper()
	used, err := usedVolumes(pod)
	if err != nil {
		t.Fatal(err)
	}
	dir := used[0].path(filepath.Join(v.node.root, "pods", string(pod.UID)))
	data, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, line := range tree(t, data) {
		mode, name, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(mode, "d") {
			out = append(out, mode+" "+name+" "+read(t, filepath.Join(dir, name)))
		}
	}
	return out
}

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func TestWrittenContents(t *testing.T) {
	items := []v1.KeyToPath{{Key: "a", Path: "x/y"},
		{Key: "b", Path: "z", Mode: ptr.To[int32](0o400)}}
	lacking := []v1.KeyToPath{{Key: "a", Path: "a"}, {Key: "none", Path: "n"}}
	for name, test := range map[string]struct {
		volume v1.Volume
		want   []string
		err    string
	}{
		"a config map": {configMapVolume(v1.ConfigMapVolumeSource{LocalObjectReference: named("cfg")}),
			[]string{"-rw-r--r-- a 1", "-rw-r--r-- b 2", "-rw-r--r-- c \x03"}, ""},
		"items and modes": {configMapVolume(v1.ConfigMapVolumeSource{
			LocalObjectReference: named("cfg"), Items: items, DefaultMode: ptr.To[int32](0o640)}),
			[]string{"-rw-r----- x/y 1", "-r-------- z 2"}, ""},
		"a missing config map": {configMapVolume(v1.ConfigMapVolumeSource{
			LocalObjectReference: named("none")}), nil,
			`MountVolume.SetUp failed for volume "v" : configmap "none" not found`},
		"a missing config map that is optional": {configMapVolume(v1.ConfigMapVolumeSource{
			LocalObjectReference: named("none"), Optional: ptr.To(true)}), nil, ""},
		"a missing key": {configMapVolume(v1.ConfigMapVolumeSource{
			LocalObjectReference: named("cfg"), Items: lacking}), nil,
			`MountVolume.SetUp failed for volume "v" : configmap references non-existent config ` +
				`key: none`},
		"a missing key that is optional": {configMapVolume(v1.ConfigMapVolumeSource{
			LocalObjectReference: named("cfg"), Items: lacking, Optional: ptr.To(true)}),
			[]string{"-rw-r--r-- a 1"}, ""},
		"a path that leads out": {configMapVolume(v1.ConfigMapVolumeSource{
			LocalObjectReference: named("cfg"), Items: []v1.KeyToPath{{Key: "a", Path: "../../x"}}}),
			nil, `MountVolume.SetUp failed for volume "v" : invalid path "../../x": must not ` +
				`contain '..'`},
		"a secret": {secretVolume(v1.SecretVolumeSource{SecretName: "key"}),
			[]string{"-rw-r--r-- k s3cret"}, ""},
		"a missing secret": {secretVolume(v1.SecretVolumeSource{SecretName: "none"}), nil,
			`MountVolume.SetUp failed for volume "v" : secret "none" not found`},
		"a missing key of a secret": {secretVolume(v1.SecretVolumeSource{SecretName: "key",
			Items: lacking[1:]}), nil,
			`MountVolume.SetUp failed for volume "v" : references non-existent secret key: none`},
		"all that can be projected": {projectedVolume(
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: named("cfg"), Items: items}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: named("key")}},
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				Audience: "vault", Path: "token"}},
			v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{
				Path: "ca.pem"}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{
				Items: []v1.DownwardAPIVolumeFile{{Path: "name",
					FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}),
			[]string{"-rw-r--r-- ca.pem anchors", "-rw-r--r-- k s3cret", "-rw-r--r-- name web",
				`-rw-r--r-- token token of web for "vault"`, "-rw-r--r-- x/y 1", "-r-------- z 2"},
			""},
		"all that projected sources lack": {projectedVolume(
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: named("none")}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: named("no")}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: named("not")}}),
			nil, `MountVolume.SetUp failed for volume "v" : configmap "none" not found` + "\n" +
				`secret "no" not found` + "\n" + `secret "not" not found`},
		"certificates": {projectedVolume(
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
				SignerName: "a.test/x", CredentialBundlePath: "all.pem"}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
				SignerName: "b.test/x", KeyPath: "key.pem", CertificateChainPath: "chain.pem"}}),
			[]string{"-rw-r--r-- all.pem key chain of a.test/x",
				"-rw-r--r-- chain.pem chain of b.test/x", "-rw-r--r-- key.pem key "}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := newVolumes(t, Config{Objects: newServer()})
			pod := podWith(test.volume)
			err := v.SetUp(t.Context(), pod)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("got %v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, contents(t, v, pod)); diff != "" {
				t.Error("-want +got:\n", diff)
			}
		})
	}
}

// Files of the downward API need no API server.
func TestDownwardFiles(t *testing.T) {
	v, _ := newVolumes(t, Config{Facts: func() cri.Facts {
		return cri.Facts{Allocatable: v1.ResourceList{"cpu": resource.MustParse("7")}}
	}})
	item := func(path, field string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path,
			FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
	}
	volume := func(items ...v1.DownwardAPIVolumeFile) v1.Volume {
		return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
			DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items},
		}}
	}
	pod := podWith(volume(item("labels", "metadata.labels"),
		item("one", "metadata.annotations['a/b']"), item("uid", "metadata.uid"),
		v1.DownwardAPIVolumeFile{Path: "cpus", Mode: ptr.To[int32](0o600),
			ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}}))
	pod.Labels = map[string]string{"b": "2", "a": "1"}
	pod.Annotations = map[string]string{"a/b": "x"}
	setUp(t, v, pod)
	want := []string{"-rw------- cpus 7", "-rw-r--r-- labels a=\"1\"\nb=\"2\"", "-rw-r--r-- one x",
		"-rw-r--r-- uid u"}
	if diff := cmp.Diff(want, contents(t, v, pod)); diff != "" {
		t.Error("-want +got:\n", diff)
	}
	for field, want := range map[string]string{
		"status.podIP": "not one a file can have", "metadata.owner": "not one a",
	} {
		err := v.SetUp(t.Context(), podWith(volume(item("x", field))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", field, err, want)
		}
	}
}

// Types that may hold secrets are in memory, all of it where the kubelet has it.
func TestWrittenLayout(t *testing.T) {
	requireRoot(t)
	for field, want := range map[string]struct{ dir, fstype string }{
		"configMap":   {"kubernetes.io~configmap", ""},
		"secret":      {"kubernetes.io~secret", "tmpfs"},
		"downwardAPI": {"kubernetes.io~downward-api", "tmpfs"},
		"projected":   {"kubernetes.io~projected", "tmpfs"},
	} {
		v, mounter := newVolumes(t, Config{Objects: newServer()})
		volume := map[string]v1.Volume{
			"configMap": configMapVolume(v1.ConfigMapVolumeSource{LocalObjectReference: named("cfg")}),
			"secret":    secretVolume(v1.SecretVolumeSource{SecretName: "key"}),
			"downwardAPI": {Name: "v", VolumeSource: v1.VolumeSource{
				DownwardAPI: &v1.DownwardAPIVolumeSource{}}},
			"projected": projectedVolume(),
		}[field]
		pod := podWith(volume)
		dir := setUp(t, v, pod)
		at := filepath.Join(dir, "volumes", want.dir, "v")
		if _, err := os.Readlink(filepath.Join(at, "..data")); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := os.Stat(filepath.Join(dir,
			"plugins/kubernetes.io~empty-dir/wrapped_v/ready")); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		mounts := mounter.MountPoints
		if want.fstype == "" && len(mounts) != 0 || want.fstype != "" && (len(mounts) != 1 ||
			mounts[0].Path != at || mounts[0].Type != want.fstype) {
			t.Errorf("%s: mounted %v, want %q on %s", field, mounts, want.fstype, at)
		}
		got, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{})
		if err != nil || !got[0].Readonly || got[0].HostPath != at || !got[0].SelinuxRelabel {
			t.Errorf("%s: the container gets %v, %v", field, got, err)
		}
		if err := v.TearDown(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); err == nil || len(mounter.MountPoints) != 0 {
			t.Errorf("%s: %v, and still mounted: %v", field, err, mounter.MountPoints)
		}
	}
}

// Without root nothing is mounted in memory and no file is given away; the pod runs all the same.
func TestWrittenWithoutRoot(t *testing.T) {
	mounter := mount.NewFakeMounter(nil)
	v, _ := newVolumes(t, Config{Objects: newServer(), Mounter: refusing{mounter, "tmpfs"}})
	v.node.asRoot = false
	pod := podWith(secretVolume(v1.SecretVolumeSource{SecretName: "key"}))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](1 << 30)}
	setUp(t, v, pod)
	if got := contents(t, v, pod); len(got) != 1 || got[0] != "-rw-r--r-- k s3cret" {
		t.Errorf("got %q", got)
	}
}

// Only the pod's one user or its group can read a token; without these everybody.
func TestTokenOwners(t *testing.T) {
	requireRoot(t)
	type pod = v1.PodSecurityContext
	type own = v1.SecurityContext
	user, other := ptr.To[int64](1000), ptr.To[int64](1001)
	for name, test := range map[string]struct {
		pod        *pod
		containers []*own
		want       string
	}{
		"nothing said":  {nil, []*own{nil}, "-rw-r--r-- 0:0"},
		"the pod's":     {&pod{RunAsUser: user}, []*own{nil, nil}, "-rw------- 1000:0"},
		"all the same":  {nil, []*own{{RunAsUser: user}, {RunAsUser: user}}, "-rw------- 1000:0"},
		"two users":     {&pod{RunAsUser: user}, []*own{nil, {RunAsUser: other}}, "-rw-r--r-- 0:0"},
		"one says none": {nil, []*own{{RunAsUser: user}, nil}, "-rw-r--r-- 0:0"},
		"a group":       {&pod{FSGroup: ptr.To[int64](77)}, []*own{nil}, "-rw-r----- 0:77"},
		"both": {&pod{FSGroup: ptr.To[int64](77), RunAsUser: user}, []*own{nil},
			"-rw-r----- 1000:77"},
	} {
		v, _ := newVolumes(t, Config{Objects: newServer()})
		p := podWith(projectedVolume(v1.VolumeProjection{
			ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}))
		p.Spec.SecurityContext = test.pod
		p.Spec.Containers[0].SecurityContext = test.containers[0]
		for _, sc := range test.containers[1:] {
			p.Spec.InitContainers = append(p.Spec.InitContainers,
				v1.Container{Name: "i", SecurityContext: sc})
		}
		dir := setUp(t, v, p)
		at := filepath.Join(dir, "volumes/kubernetes.io~projected/v/token")
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		var s unix.Stat_t
		if err := unix.Stat(at, &s); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%v %d:%d", info.Mode(), s.Uid, s.Gid); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// big returns a config map whose one file takes that much room.
func big(room int) *v1.ConfigMap {
	return &v1.ConfigMap{BinaryData: map[string][]byte{"x": make([]byte, room-perFile-len("x"))}}
}

// The content of a volume is bounded, whatever its sources.
func TestWrittenSize(t *testing.T) {
	s := newServer()
	s.maps["big"] = big(maxContent / 4)
	var sources []v1.VolumeProjection
	for i := range 5 {
		sources = append(sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: named("big"),
			Items:                []v1.KeyToPath{{Key: "x", Path: fmt.Sprint(i)}}}})
	}
	v, _ := newVolumes(t, Config{Objects: s})
	err := v.SetUp(t.Context(), podWith(projectedVolume(sources...)))
	const want = "its files, with their names, take more than 16777216 bytes; use fewer sources"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	setUp(t, v, podWith(projectedVolume(sources[:4]...)))
}

// Nothing too large is ever in memory: a pod's volumes together cost the agent no more than their
// bound, however often the pod makes it build them.
func TestWrittenSizeIsBoundedWhileItIsMade(t *testing.T) {
	const many = 9000
	large := strings.Repeat("x", 200<<10)
	s := newServer()
	s.maps["big"] = &v1.ConfigMap{Data: map[string]string{"k": strings.Repeat("y", 1<<20)}}
	s.secrets["big"] = &v1.Secret{Data: map[string][]byte{}}
	for i := range 10_000 {
		s.secrets["big"].Data[fmt.Sprint("k", i)] = nil
	}
	volumes := map[string]v1.Volume{}
	var annotations []v1.DownwardAPIVolumeFile
	var projected, maps, secrets []v1.VolumeProjection
	for i := range many {
		path := fmt.Sprint(i)
		item := v1.DownwardAPIVolumeFile{Path: path,
			FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}
		annotations = append(annotations, item)
		projected = append(projected, v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{
			Items: []v1.DownwardAPIVolumeFile{item}}})
		maps = append(maps, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: named("big"),
			Items:                []v1.KeyToPath{{Key: "k", Path: path}}}})
		secrets = append(secrets, v1.VolumeProjection{Secret: &v1.SecretProjection{
			LocalObjectReference: named("big")}})
	}
	volumes["downward API"] = v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		DownwardAPI: &v1.DownwardAPIVolumeSource{Items: annotations}}}
	volumes["projected downward API"] = projectedVolume(projected...)
	volumes["keys of a config map"] = projectedVolume(maps...)
	volumes["all keys of a secret"] = projectedVolume(secrets...)
	for name, volume := range volumes {
		t.Run(name, func(t *testing.T) {
			v, _ := newVolumes(t, Config{Objects: s})
			pod := podWith(volume)
			pod.Annotations = map[string]string{"a": large}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := v.SetUp(t.Context(), pod)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "use fewer sources") {
				t.Errorf("got %.200v", err)
			}
			if all := after.TotalAlloc - before.TotalAlloc; all > 5*maxContent {
				t.Errorf("%d MiB were made for it", all>>20)
			}
		})
	}
}

// All volumes of a pod together are bounded too, at first and with each update.
func TestWrittenSizeOfPod(t *testing.T) {
	s := newServer()
	s.maps["big"] = big(maxContent)
	var volumes []v1.Volume
	for i := range maxPodContent/maxContent + 1 {
		volume := configMapVolume(v1.ConfigMapVolumeSource{LocalObjectReference: named("big")})
		volume.Name = fmt.Sprint("v", i)
		volumes = append(volumes, volume)
	}
	v, _ := newVolumes(t, Config{Objects: s})
	most := podWith(volumes[:len(volumes)-1]...)
	setUp(t, v, most)
	if err := v.Update(t.Context(), most); err != nil {
		t.Errorf("update as much as there may be: %v", err)
	}
	const want = `for volume "v4" : its files, with their names, take more than what other volumes ` +
		"leave of the 67108864 bytes for all volumes of a pod; use fewer volumes"
	over := podWith(volumes...)
	for name, bring := range map[string]func(context.Context, *v1.Pod) error{
		"set up": v.SetUp, "update": v.Update,
	} {
		if err := bring(t.Context(), over); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
	}
}
