package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	containerdrig "github.com/numalet/numalet/test/containerd/rig"
)

// pagesInside is set where the machine seems to have huge pages.
const pagesInside = "NUMALET_TEST_PAGES"

// withPages runs its arguments where the files of sysfs say that there are 128 huge pages of 2 MiB,
// and where the first hierarchy of cgroups has the controller for them. The machine's pages are not
// touched, and nobody else sees any of it.
const withPages = `set -e
dir=$1
shift
echo 128 > $dir/pages
for file in /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages \
    /sys/devices/system/node/node[0-9]*/hugepages/hugepages-2048kB/nr_hugepages; do
    mount --bind $dir/pages $file
done
if [ ! -e /sys/fs/cgroup/cgroup.controllers ] && [ ! -e /sys/fs/cgroup/hugetlb ]; then
    mkdir $dir/cgroup
    mount -t tmpfs cgroup $dir/cgroup
    for one in /sys/fs/cgroup/*; do
        mkdir $dir/cgroup/${one##*/}
        mount --bind $one $dir/cgroup/${one##*/}
    done
    mkdir $dir/cgroup/hugetlb
    mount -t cgroup -o hugetlb cgroup $dir/cgroup/hugetlb
    mount --rbind $dir/cgroup /sys/fs/cgroup
fi
exec "$@"
`

// TestPagesByClaim: huge pages that resource claims bring count under numalet as under the stock
// kubelet, as CPUs and memory do (TestAmountsByClaim).
func TestPagesByClaim(t *testing.T) {
	containerdrig.Require(t)
	if os.Getenv(pagesInside) != "" {
		containerdrig.Alone(t)
		ours, _ := compareAmounts(t, pagePods)
		ours.limitsPages(t, "besides", 6<<20)
		return
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", withPages, "pages",
		t.TempDir(), os.Args[0], "-test.run=^TestPagesByClaim$", "-test.v")
	cmd.Env = append(os.Environ(), pagesInside+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	before := hierarchies(t)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestPagesByClaim") {
		t.Errorf("%v\n%s", err, out)
	}
	sweep := exec.Command("../scratch/hugetlb.sh", filepath.Base(os.TempDir()))
	if out, err := sweep.CombinedOutput(); err != nil || hierarchies(t) != before {
		t.Errorf("the machine has other hierarchies of cgroups than before: %v\n%s", err, out)
	}
}

// hierarchies lists those of cgroups.
func hierarchies(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			out = append(out, fields[0]+" "+fields[1])
		}
	}
	return strings.Join(out, ",")
}

// limitsPages checks the limit of huge pages of a pod's cgroup: both agents could set none.
func (s *inside) limitsPages(t *testing.T, name string, want int) {
	t.Helper()
	pod, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	values := s.cgroupOf(t, pod)
	for at, value := range values {
		if strings.Contains(at, "hugetlb.2MB.") && value == fmt.Sprintf("%d<nil>", want) {
			return
		}
	}
	t.Errorf("%s: the limit of huge pages is not %d: %v", name, want, values)
}

// pagePods are pods with claims that bring huge pages.
func pagePods() []bringing {
	const limits, pages = "cpu=80m memory=32Mi", "hugepages-2Mi=2Mi" // with less CPU runc starts slowly
	usual := amounts{mapping: "hugepages-2Mi=4Mi"}
	costs := amounts{perPod: "hugepages-2Mi=2Mi", perContainer: "hugepages-2Mi=4Mi"}
	all := amounts{"hugepages-2Mi=2Mi cpu=10m memory=8Mi", "hugepages-2Mi=4Mi", "hugepages-2Mi=6Mi"}
	out := []bringing{
		amountPod("guaranteed", one(usual), "main "+limits+" x"),
		amountPod("best-effort", one(usual), "main x"),
		amountPod("besides", one(usual), "main "+limits+" "+pages+" x"),
		amountPod("shared", one(usual), "main "+limits+" "+pages+" x", "second "+limits+" x",
			"third "+limits+" "+pages),
		amountPod("unused", one(usual), "main "+limits+" "+pages),
		amountPod("costs", one(costs), "main "+limits+" "+pages+" x", "second "+limits+" x"),
		amountPod("two-claims", map[string]amounts{"x": all, "y": usual},
			"main "+limits+" "+pages+" x y", "second "+limits+" y"),
		amountPod("init", one(all), "main "+limits+" "+pages+" x"),
	}
	first := containerUsing("first " + limits + " " + pages + " x")
	first.Image = doneImage
	last := &out[len(out)-1].pod.Spec
	last.InitContainers = []v1.Container{first}
	return out
}
