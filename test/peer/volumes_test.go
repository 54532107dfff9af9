package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// volume names the pods' volume, its driver and its claim.
func (n *node) volume() string { return n.Name + ".csi.test" }

// volumes starts pods with a CSI volume, one after the other: first beside a pod that keeps the volume
// attached and staged, where only the agent's own time counts, and then pods that have it attached and
// staged for them.
func (n *node) volumes() {
	n.t.Helper()
	driver := n.provide()
	n.create(n.mounting("keeper"))
	n.when("ready", n.ready, "keeper")
	var own []float64
	for i := range n.settings.singles {
		name := fmt.Sprintf("staged%d", i)
		idle, called := n.inRuntime("run_podsandbox", "create_container", "start_container"),
			onNode(driver)
		began := n.create(n.mounting(name))
		took := n.when("ready", n.ready, name).Sub(began)
		time.Sleep(200 * time.Millisecond) // for what the agent writes behind
		own = append(own, ms(took-idle()-(onNode(driver)-called)))
		n.remove(name)
		n.when("gone", n.gone, name)
	}
	n.column.add("volume_staged_start_own_p50_ms", median(own))
	n.remove("keeper")
	n.when("gone", n.gone, "keeper")

	var start, stop []float64
	for i := range n.settings.singles {
		n.awaitDetached()
		name := fmt.Sprintf("attached%d", i)
		began := n.create(n.mounting(name))
		start = append(start, n.when("ready", n.ready, name).Sub(began).Seconds())
		began = n.remove(name)
		n.when("gone", n.gone, name)
		n.awaitDetached()
		stop = append(stop, time.Since(began).Seconds())
	}
	n.column.add("volume_attach_to_running_p50_s", median(start))
	n.column.add("volume_delete_to_detached_p50_s", median(stop))
}

// provide starts the driver with its attacher, and makes a volume and its claim.
func (n *node) provide() *rig.CSIDriver {
	n.t.Helper()
	api, core, ctx := n.cluster.Client.StorageV1(), n.cluster.Client.CoreV1(), context.Background()
	meta := metav1.ObjectMeta{Name: n.volume()}
	_, err := api.CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: meta,
		Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}}, metav1.CreateOptions{})
	n.must(err)
	driver := n.CSIDriver(csidriver.Config{Name: n.volume()})
	driver.Sidecar("csi-attacher")
	id, err := csidriver.Provision(driver.Dir, n.volume(), 64<<20)
	n.must(err)
	size := v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(64<<20, resource.BinarySI)}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	_, err = core.PersistentVolumes().Create(ctx, &v1.PersistentVolume{ObjectMeta: meta,
		Spec: v1.PersistentVolumeSpec{Capacity: size, AccessModes: modes,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			StorageClassName:              n.volume(),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: n.volume(), VolumeHandle: id}}}}, metav1.CreateOptions{})
	n.must(err)
	n.t.Cleanup(func() {
		n.must(errors.Join(core.PersistentVolumes().Delete(ctx, n.volume(), metav1.DeleteOptions{}),
			api.CSIDrivers().Delete(ctx, n.volume(), metav1.DeleteOptions{})))
	})
	_, err = core.PersistentVolumeClaims(n.cluster.Namespace).Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: meta, Spec: v1.PersistentVolumeClaimSpec{AccessModes: modes,
			StorageClassName: ptr.To(n.volume()), VolumeName: n.volume(),
			Resources: v1.VolumeResourceRequirements{Requests: size}}}, metav1.CreateOptions{})
	n.must(err)
	harness.Eventually(n.t, "the driver is registered and the claim bound", func() error {
		node, err := api.CSINodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim, err := core.PersistentVolumeClaims(n.cluster.Namespace).Get(ctx, n.volume(),
			metav1.GetOptions{})
		if err == nil && (len(node.Spec.Drivers) == 0 || claim.Status.Phase != v1.ClaimBound) {
			err = fmt.Errorf("CSINode has %v, the claim is %s", node.Spec.Drivers, claim.Status.Phase)
		}
		return err
	})
	return driver
}

// mounting returns a pod with the volume.
func (n *node) mounting(name string) *v1.Pod {
	pod := n.pod(name)
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: n.volume()}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return pod
}

// awaitDetached waits until the volume is attached nowhere.
func (n *node) awaitDetached() {
	n.t.Helper()
	harness.Eventually(n.t, "the volume is detached", func() error {
		all, err := n.cluster.Client.StorageV1().VolumeAttachments().List(context.Background(),
			metav1.ListOptions{})
		if err == nil && len(all.Items) > 0 {
			err = fmt.Errorf("there is %s", all.Items[0].Name)
		}
		return err
	})
}

// onNode returns how long all calls of the agent to mount volumes took so far.
func onNode(driver *rig.CSIDriver) (sum time.Duration) {
	for _, c := range driver.Calls() {
		mounts := c.Method == "NodeStageVolume" || c.Method == "NodePublishVolume"
		if mounts && !c.Ended.IsZero() {
			sum += c.Ended.Sub(c.Began)
		}
	}
	return sum
}
