package cluster_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/test/harness"
)

// gpu is the resource of the device plugin.
const gpu = "example.com/gpu"

// kind says who makes the pods of a workload.
type kind int

// Each kind but the first is made through the API server.
const (
	static     kind = iota // a manifest
	bare                   // a pod that nobody replaces
	deployment             // pods that are replaced
	job                    // ends
	kinds
)

func (k kind) String() string {
	return [...]string{"static", "bare", "deployment", "job"}[k]
}

// indirect reports whether controllers make the pods.
func (k kind) indirect() bool { return k >= deployment }

// desired is a workload that a test wants in the cluster.
type desired struct {
	name       string
	kind       kind
	generation int // a change replaces the pods
	replicas   int // of a deployment
	cpus, gpus int // exclusive
	script     script
	grace      int64
	// attended: its containers have probes, hooks and a mounted volume.
	attended bool

	// uid is the UID of the bare pod that was created; "": there is none of this generation.
	uid types.UID
	// gone: it is being removed, with force by force.
	gone, force bool
	// touched: its pods may have been replaced since the last quiet time.
	touched bool
}

// script is what the containers of a pod do.
type script struct {
	simulated string   // for the simulated runtime
	args      []string // for the program in real containers
	exit      int32    // of a job
	crashes   int32    // how often it fails before it keeps running
}

// The scripts. Only on the simulated runtime can a container crash several times.
var (
	obeys    = script{}
	slowly   = script{simulated: "term-after=30ms"}
	ignores  = script{simulated: "term=ignore", args: []string{"--ignore-term"}}
	crashes  = script{simulated: "exit=1 after=20ms attempts=2", crashes: 2}
	succeeds = script{simulated: "exit=0 after=50ms", args: []string{"--exit=0", "--after=50ms"}}
	fails    = script{simulated: "exit=3 after=10ms", args: []string{"--exit=3"}, exit: 3}
)

// workloads are all workloads of a test, by name.
type workloads struct {
	random  *rand.Rand
	image   string
	cpus    int      // the bound on all exclusive CPUs together
	scripts []script // for workloads that do not end
	well    []string // a command that succeeds in containers
	// direct: only pods that need no other server than the API server come and go, since the others
	// take up to a minute to notice that it is back.
	direct  bool
	of      map[string]*desired
	counter int
}

// wantedGPUs bounds the wanted devices. There are more devices and CPUs than wanted: pods that are
// deleted by force hold theirs for a while.
const wantedGPUs, haveGPUs = 5, 10

func (w *workloads) names() []string { return slices.Sorted(maps.Keys(w.of)) }

// used returns all exclusive CPUs and devices.
func (w *workloads) used() (cpus, gpus int) {
	for _, o := range w.of {
		n := 1
		if o.kind == deployment {
			n = o.replicas + 1 // during a rollout
		}
		cpus, gpus = cpus+n*o.cpus, gpus+n*o.gpus
	}
	return cpus, gpus
}

// invent adds a workload.
func (w *workloads) invent() *desired {
	w.counter++
	k := kind(w.random.IntN(int(kinds)))
	if w.direct {
		k %= deployment
	}
	o := &desired{
		name: fmt.Sprintf("%s%d", k, w.counter), kind: k, replicas: 1 + w.random.IntN(2),
		script: w.scripts[w.random.IntN(len(w.scripts))], grace: int64(w.random.IntN(2)),
		touched: true,
	}
	if k == job {
		o.script = []script{succeeds, fails}[w.random.IntN(2)]
	}
	o.attended = k != job && o.script.crashes == 0 && w.counter%2 == 0
	switch w.random.IntN(3) {
	case 0:
		o.gpus = 1 + w.random.IntN(2)
	case 1:
		o.cpus = w.random.IntN(4)
	}
	w.of[o.name] = o
	if cpus, gpus := w.used(); cpus > w.cpus || gpus > wantedGPUs {
		o.cpus, o.gpus = 0, 0
	}
	return o
}

// change adds, changes or removes a workload, and returns it.
func (w *workloads) change() *desired {
	names := w.names()
	if len(names) < 4 || len(names) < 9 && w.random.IntN(2) == 0 {
		return w.invent()
	}
	o := w.of[names[w.random.IntN(len(names))]]
	if o.gone || w.direct && o.kind.indirect() {
		return o
	}
	o.touched = true
	switch how := w.random.IntN(4); {
	case how == 0 && o.kind == deployment:
		o.replicas = w.random.IntN(3)
		if cpus, gpus := w.used(); cpus > w.cpus || gpus > wantedGPUs {
			o.replicas = 0
		}
	case how < 2 && o.kind != job: // the same name again
		o.generation++
		o.force = w.random.IntN(2) == 0
	default:
		o.gone, o.force = true, w.random.IntN(2) == 0
	}
	return o
}

// drop removes the workloads that which selects.
func (w *workloads) drop(which func(*desired) bool) {
	for _, o := range w.of {
		o.gone = o.gone || which(o)
	}
}

// pods returns how many pods it has when the node is quiet.
func (o *desired) pods() int {
	if o.kind == deployment {
		return o.replicas
	}
	return 1
}

// labels selects its pods.
func (o *desired) labels() map[string]string {
	return map[string]string{"want": o.name, "generation": strconv.Itoa(o.generation)}
}

// template returns its pod template. The scheduler chooses the node, unless node is set.
func (w *workloads) template(o *desired, node string) v1.PodTemplateSpec {
	limits := v1.ResourceList{}
	if o.cpus > 0 {
		limits[v1.ResourceCPU] = *resource.NewQuantity(int64(o.cpus), resource.DecimalSI)
		limits[v1.ResourceMemory] = resource.MustParse("16Mi")
	}
	if o.gpus > 0 {
		limits[gpu] = *resource.NewQuantity(int64(o.gpus), resource.DecimalSI)
	}
	out := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      o.labels(),
			Annotations: map[string]string{simulated: o.script.simulated},
		},
		Spec: v1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(o.kind != static && o.cpus == 0),
			TerminationGracePeriodSeconds: &o.grace,
			Containers: []v1.Container{{
				Name: "main", Image: w.image, Args: o.script.args,
				Env: []v1.EnvVar{
					{Name: harness.AloneEnv, Value: strconv.Itoa(o.cpus)},
					{Name: "GENERATION", Value: strconv.Itoa(o.generation)},
				},
				Resources: v1.ResourceRequirements{Limits: limits},
			}},
		},
	}
	if o.attended {
		w.attend(&out.Spec)
	}
	if o.kind == job {
		out.Spec.RestartPolicy = v1.RestartPolicyNever
	}
	switch {
	case o.kind == static:
		out.Spec.AutomountServiceAccountToken = nil
	case w.direct:
		out.Spec.NodeName = node
	default:
		out.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
	}
	return out
}

// attend gives the container of a pod probes and hooks that all succeed unless a fault interferes,
// and memory to write to. The probes are patient with a slow machine.
func (w *workloads) attend(spec *v1.PodSpec) {
	well := &v1.ExecAction{Command: w.well}
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: well}, PeriodSeconds: 1,
		TimeoutSeconds: 10, FailureThreshold: 10}
	c := &spec.Containers[0]
	c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = probe, probe, probe
	c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: well},
		PreStop: &v1.LifecycleHandler{Exec: well}}
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "memory", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory,
			SizeLimit: ptr.To(resource.MustParse("1Mi"))}}})
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "memory", MountPath: "/memory"})
}
