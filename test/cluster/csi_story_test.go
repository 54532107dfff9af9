package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// csiCase is a pod with a volume of a driver of its own.
type csiCase struct {
	name   string
	driver csidriver.Config
	// object adds to the CSIDriver's spec, volume to that of the persistent volume, source to its csi,
	// pod to the pod's.
	object, volume, source, pod string
	// mount is how the container has the volume data, and claim adds to how the pod names its claim.
	mount, claim string
	// inline is the pod's volume, in place of a claim.
	inline string
	bytes  int64 // of the volume; 64 MiB at least
	// crashes is how often the driver ends and is started again before the pod runs.
	crashes int
	// before is done once all is there but the pod, during once the pod runs.
	before, during func(t *testing.T, s *csiStory)
}

// csiStory is a case on the node of one agent, told as text.
type csiStory struct {
	rig.Cluster
	rig.Node
	csiCase

	d        *rig.CSIDriver
	id       string // of the volume
	reported int    // calls
	events   map[string]bool
	text     strings.Builder
}

func (s *csiStory) volumeName() string { return s.Namespace + "-" + s.name }

// tellCSI plays a case and returns what was seen of it.
func tellCSI(t *testing.T, c rig.Cluster, n rig.Node, is csiCase) string {
	s := &csiStory{Cluster: c, Node: n, csiCase: is, events: map[string]bool{}}
	s.furnish(t)
	s.await(t, "the driver is registered", func() error { return s.isRegistered(t, true) })
	s.tell(t, "registered")
	if s.before != nil {
		s.before(t, s)
	}
	s.begin(s.name)
	pod := await(t, c, c.Namespace, s.name, runs)
	s.await(t, "the driver is registered after each start", func() error {
		if n := s.called("NotifyRegistrationStatus"); n <= s.crashes {
			return fmt.Errorf("it was told so %d times", n)
		}
		return s.isRegistered(t, true)
	})
	s.tell(t, "runs", string(pod.UID))
	if s.during != nil {
		s.during(t, s)
		s.tell(t, "later", string(pod.UID))
	}
	c.MustRun("delete", "pod", s.name, "--timeout=2m")
	s.ended(t, string(pod.UID))
	s.tell(t, "ended", string(pod.UID))
	s.d.Process.Stop()
	s.await(t, "the driver is gone", func() error { return s.isRegistered(t, false) })
	s.reported = len(s.d.Calls())
	s.tell(t, "gone", string(pod.UID))
	return s.text.String()
}

// registered returns what the CSINode has of the driver.
func (s *csiStory) registered(t *testing.T) (d storagev1.CSINodeDriver, err error) {
	node, err := s.Client.StorageV1().CSINodes().Get(t.Context(), s.Name, metav1.GetOptions{})
	if err != nil {
		return d, err
	}
	for _, d := range node.Spec.Drivers {
		if d.Name == s.d.Name {
			return d, nil
		}
	}
	return d, fmt.Errorf("CSINode has %+v", node.Spec.Drivers)
}

// isRegistered checks that the CSINode and the node have the driver, or that neither has.
func (s *csiStory) isRegistered(t *testing.T, want bool) error {
	_, err := s.registered(t)
	if has := err == nil; has != want {
		return fmt.Errorf("the CSINode has the driver: %t", has)
	}
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ids := node.Annotations["csi.volume.kubernetes.io/nodeid"]; strings.Contains(ids, s.d.Name) != want {
		return fmt.Errorf("the node has the ids %s", ids)
	}
	return nil
}

// called counts the calls of a method.
func (s *csiStory) called(method string) (n int) {
	for _, c := range s.d.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

func (s *csiStory) await(t *testing.T, what string, check func() error) {
	t.Helper()
	harness.Eventually(t, what, check)
}

// ended waits until the node has nothing of the volume any more.
func (s *csiStory) ended(t *testing.T, pod string) {
	t.Helper()
	s.await(t, "the volume is detached and unmounted", func() error {
		node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(node.Status.VolumesInUse)+len(node.Status.VolumesAttached) > 0 {
			return fmt.Errorf("in use are %v, attached %v", node.Status.VolumesInUse, node.Status.VolumesAttached)
		}
		if left := csidriver.Loops(s.d.Dir); len(left) > 0 {
			return fmt.Errorf("there are loop devices %v", left)
		}
		if err := s.staged(0); err != nil {
			return err
		}
		if mountedBelow(t, filepath.Join(s.Root, "pods", pod)) {
			return errors.New("something of the pod is mounted")
		}
		if _, err := os.Stat(filepath.Join(s.Root, "pods", pod)); !os.IsNotExist(err) {
			return fmt.Errorf("the pod's directory is there: %v", err)
		}
		return nil
	})
}

// staged checks that the node has records of so many staged volumes with file systems.
func (s *csiStory) staged(want int) error {
	records, err := filepath.Glob(filepath.Join(s.Root, "plugins/kubernetes.io/csi", s.d.Name, "*/vol_data.json"))
	if err == nil && len(records) != want {
		err = fmt.Errorf("there are the records %q of staged volumes, want %d", records, want)
	}
	return err
}

// furnish starts the driver and creates all but the pod.
func (s *csiStory) furnish(t *testing.T) {
	t.Helper()
	s.serve(t)
	s.Apply(`{apiVersion: v1, kind: Secret, metadata: {name: csi}, stringData: {key: hidden}}`)
	s.Apply(`{apiVersion: v1, kind: Secret, metadata: {name: csi-publish}, stringData: {key: published}}`)
	if s.inline == "" {
		s.id = s.addClaim(t, s.name)
	}
}

// serve starts the driver, with an attacher if it attaches.
func (s *csiStory) serve(t *testing.T) {
	t.Helper()
	s.driver.Name = s.name + "." + s.Namespace + ".csi.test"
	object := fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: %s}, spec: {
 attachRequired: %t, podInfoOnMount: true, %s}}`, s.driver.Name, !s.driver.NoAttach && s.inline == "", s.object)
	s.Apply(object)
	s.d = s.CSIDriver(s.driver)
	t.Cleanup(func() {
		s.MustRun("delete", "csidriver", s.d.Name, "--wait=false")
	})
	if !s.driver.NoAttach && s.inline == "" {
		s.d.Sidecar("csi-attacher")
	}
}

// addClaim makes a volume, and a claim of that name which is bound to it. It returns the volume's id.
func (s *csiStory) addClaim(t *testing.T, name string) string {
	t.Helper()
	bytes, volume := max(s.bytes, 64<<20), s.Namespace+"-"+name
	id, err := csidriver.Provision(s.d.Dir, volume, bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.MustRun("delete", "pv", "--ignore-not-found", volume, "--wait=false") })
	mode, access, more := "Filesystem", "ReadWriteOnce", s.volume
	if strings.Contains(more, "volumeMode") {
		mode = "Block"
	}
	if found := regexp.MustCompile(`accessModes: \[(\w+)\]`).FindStringSubmatch(more); found != nil {
		access = found[1]
	} else {
		more += " accessModes: [ReadWriteOnce],"
	}
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {
 storageClassName: "%[1]s", capacity: {storage: %d}, persistentVolumeReclaimPolicy: Retain, %s
 csi: {driver: %s, volumeHandle: %s, %s}}}`, volume, bytes, more, s.d.Name, id, s.source))
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {
 volumeMode: %s, accessModes: [%s], storageClassName: "%s", volumeName: %[4]s,
 resources: {requests: {storage: %d}}}}`, name, mode, access, volume, bytes))
	s.await(t, "the claim is bound", func() error {
		claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(t.Context(), name,
			metav1.GetOptions{})
		if err == nil && claim.Status.Phase != v1.ClaimBound {
			err = fmt.Errorf("it is %s", claim.Status.Phase)
		}
		return err
	})
	return id
}

// begin creates a pod with the volume of the claim of its name.
func (s *csiStory) begin(name string) {
	volume, mount := fmt.Sprintf("persistentVolumeClaim: {claimName: %s, %s}", name, s.claim), s.mount
	if s.inline != "" {
		volume = fmt.Sprintf("csi: {driver: %s, %s}", s.d.Name, s.inline)
	}
	if mount == "" {
		mount = "volumeMounts: [{name: data, mountPath: /data}]"
	}
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, %s
 volumes: [{name: data, %s}],
 containers: [{name: main, image: "registry.test/work:1", %s}]}}`, name, s.Name, s.pod, volume, mount))
}

// tell adds what is new: calls and events, and what is there now: files, mounts, the node.
func (s *csiStory) tell(t *testing.T, when string, pods ...string) {
	t.Helper()
	fmt.Fprintf(&s.text, "== %s\n", when)
	calls := s.d.Calls()
	for _, c := range calls[s.reported:] {
		if c.Method == "NodeGetVolumeStats" {
			continue
		}
		line := fmt.Sprintf("call %s %s", c.Method, flat(c.Request))
		switch {
		case c.Ended.IsZero():
			line += " -> no answer yet"
		case !c.Done():
			line += fmt.Sprintf(" -> %v %s", c.Code, c.Message)
		}
		s.line(line)
	}
	s.reported = len(calls)
	for _, e := range s.newEvents(t) {
		s.line("event " + e)
	}
	for _, f := range s.files(t, pods) {
		s.line("file " + f)
	}
	s.tellPod(t)
	s.tellNode(t)
}

// tellPod tells the status of the pod and of its claim, if they are there.
func (s *csiStory) tellPod(t *testing.T) {
	core := s.Client.CoreV1()
	pod, err := core.Pods(s.Namespace).Get(t.Context(), s.name, metav1.GetOptions{})
	if err == nil {
		s.line("pod " + string(pod.Status.Phase) + " " + pod.Status.Reason + " " + pod.Status.Message)
		for _, c := range pod.Status.Conditions {
			s.line(fmt.Sprintf("pod condition %s %s %s %s", c.Type, c.Status, c.Reason, c.Message))
		}
		for _, c := range pod.Status.ContainerStatuses {
			mounts, err := json.Marshal(c.VolumeMounts)
			if err != nil {
				t.Fatal(err)
			}
			s.line(fmt.Sprintf("pod container %s ready %t restarts %d mounts %s resources %v", c.Name, c.Ready,
				c.RestartCount, mounts, c.AllocatedResources))
		}
	}
	claim, err := core.PersistentVolumeClaims(s.Namespace).Get(t.Context(), s.name, metav1.GetOptions{})
	if err == nil {
		s.line(fmt.Sprintf("claim %s has %v, allocated %v %v", claim.Status.Phase, claim.Status.Capacity,
			claim.Status.AllocatedResources, claim.Status.AllocatedResourceStatuses))
		for _, c := range claim.Status.Conditions {
			if c.Type != "Unused" { // a controller's
				s.line(fmt.Sprintf("claim condition %s %s %s %s", c.Type, c.Status, c.Reason, c.Message))
			}
		}
	}
}

func (s *csiStory) tellNode(t *testing.T) {
	ctx := t.Context()
	node, err := s.Client.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.line(fmt.Sprintf("node in use %v attached %v", node.Status.VolumesInUse, node.Status.VolumesAttached))
	for key, value := range node.Annotations {
		if strings.Contains(key, "csi") || strings.Contains(key, "attach") {
			s.line("node annotation " + key + "=" + value)
		}
	}
	for key, value := range node.Labels {
		if strings.Contains(key, "csi.test") {
			s.line("node label " + key + "=" + value)
		}
	}
	csi, err := s.Client.StorageV1().CSINodes().Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range csi.Spec.Drivers {
		count := "none"
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			count = fmt.Sprint(*d.Allocatable.Count)
		}
		s.line(fmt.Sprintf("csinode %s id %s keys %v count %s", d.Name, d.NodeID, d.TopologyKeys, count))
	}
	for key, value := range csi.Annotations {
		s.line("csinode annotation " + key + "=" + value)
	}
	for _, o := range csi.OwnerReferences {
		s.line(fmt.Sprintf("csinode owner %s %s %s %v", o.APIVersion, o.Kind, o.Name, o.UID == node.UID))
	}
}

// newEvents returns the agent's events that were not told yet.
func (s *csiStory) newEvents(t *testing.T) (out []string) {
	all, err := s.Client.CoreV1().Events(s.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(all.Items, func(a, b v1.Event) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, e := range all.Items {
		about := e.InvolvedObject
		if about.Name != s.name || e.Source.Component != "kubelet" {
			continue
		}
		line := fmt.Sprintf("kubelet %s %s/%s %s %s: %s", e.Source.Host, about.Kind, about.Name, e.Type,
			e.Reason, e.Message)
		if !s.events[line] {
			s.events[line] = true
			out = append(out, line)
		}
	}
	return out
}

// line adds a line without what differs from run to run.
func (s *csiStory) line(text string) { s.text.WriteString(s.nameless(text) + "\n") }

func (s *csiStory) nameless(text string) string {
	return nameless(text, s.Name, s.d.Name, "DRIVER", s.Root, "ROOT", s.d.Dir, "DIR", s.volumeName(), "PV",
		s.Namespace, "NS", s.id, "VOLUME")
}

// flat returns JSON without the spaces that protojson puts in at random.
func flat(raw []byte) string {
	return strings.NewReplacer(": ", ":", ", ", ",").Replace(string(raw))
}
