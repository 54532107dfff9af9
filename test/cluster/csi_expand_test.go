package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestCSIExpandKill: a mounted volume grows while the agent is killed, while its driver dies in the
// middle of the expansion, or refuses it once. The claim says in the end that it has grown, and the file
// system has, with its data. NUMALET_ROUNDS is how often, NUMALET_ROUNDS_SEED draws other moments.
func TestCSIExpandKill(t *testing.T) {
	random := rand.New(rand.NewPCG(harness.Number(t, "NUMALET_ROUNDS_SEED", 1), 0))
	c := rig.Start(t)
	s := &csiStory{Cluster: c, Node: csiNodeOf(t, c, "numalet"), events: map[string]bool{},
		csiCase: csiCase{name: "grow", source: "fsType: xfs", bytes: 512 << 20}}
	s.serve(t)
	s.d.Sidecar("csi-resizer")
	s.Apply(fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s},
 provisioner: %s, allowVolumeExpansion: true}`, s.volumeName(), s.d.Name))
	defer s.MustRun("delete", "storageclass", s.volumeName())
	s.addClaim(t, s.name)
	s.begin(s.name)
	pod := await(t, c, c.Namespace, s.name, runs)
	if err := writeSynced(s.file(pod), "kept"); err != nil {
		t.Fatal(err)
	}
	pause := func() { time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond) }
	orders := []csidriver.Order{{CrashAfter: true}, {Delay: time.Second}, {CrashBefore: true},
		{Code: 13, Message: "not now"}}
	for i := range int(harness.Number(t, "NUMALET_ROUNDS", 2)) {
		order := orders[i%len(orders)]
		order.Method, order.Times = "NodeExpandVolume", 1
		s.d.Order(order)
		size := resource.MustParse(fmt.Sprintf("%dMi", 640+128*i))
		s.MustRun("patch", "pvc", s.name, "-p",
			fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size.String()))
		pause()
		s.Node.Kill()
		pause()
		s.Node.Start()
		s.awaitGrown(t, pod, size)
	}
	if text, err := os.ReadFile(s.file(pod)); string(text) != "kept" {
		t.Errorf("the volume has %q, %v", text, err)
	}
	c.MustRun("delete", "pod", s.name, "--timeout=2m")
	s.ended(t, string(pod.UID))
	checkCalls(t, s.d.Calls(), nil)
}

// awaitGrown waits until the claim and the file system have a size. The driver is started when it died.
func (s *csiStory) awaitGrown(t *testing.T, pod *v1.Pod, size resource.Quantity) {
	t.Helper()
	harness.Eventually(t, "the volume has "+size.String(), func() error {
		if s.d.Process.Died() != nil {
			if err := s.d.Process.Start(); err != nil {
				t.Fatal(err)
			}
		}
		claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(t.Context(), s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is := claim.Status.Capacity[v1.ResourceStorage]
		if is.Cmp(size) < 0 || len(claim.Status.AllocatedResourceStatuses) > 0 {
			return fmt.Errorf("the claim's status is %+v", claim.Status)
		}
		var stat unix.Statfs_t
		if err := unix.Statfs(filepath.Dir(s.file(pod)), &stat); err != nil {
			return err
		}
		if has := int64(stat.Blocks) * stat.Bsize; has < size.Value()*4/5 {
			return fmt.Errorf("the file system has %d bytes", has)
		}
		return nil
	})
}
