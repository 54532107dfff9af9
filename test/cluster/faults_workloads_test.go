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

// kind is who makes a pod.
type kind int

// Each kind but the first is made through the API server.
const (
	static     kind = iota // a manifest
	bare                   // nobody makes it again
	deployment             // one or some that are replaced
	job                    // ends
	kinds
)

func (k kind) String() string {
	return [...]string{"static", "bare", "deployment", "job"}[k]
}

// indirect reports whether others than the API server have to make its pods.
func (k kind) indirect() bool { return k >= deployment }

// desired is something that a test desires of the cluster.
type desired struct {
	name       string
	kind       kind
	generation int // a new one makes other pods
	replicas   int // of a deployment
	cpus, gpus int // of its own
	script     script
	grace      int64
	// attended: its containers have probes, hooks and a volume that is mounted.
	attended bool

	// uid is that of the bare pod that was made; "" while there is none of this generation.
	uid types.UID
	// gone: it is to be removed, by force if that is so.
	gone, force bool
	// touched: its pods may be others than when all was quiet last.
	touched bool
}

// script is what the containers of a pod do.
type script struct {
	simulated string   // for the simulated runtime
	args      []string // for the program in real containers
	exit      int32    // of a job
	crashes   int32    // how often it is started again until it runs on
}

// The scripts. What crashes some times only does so on the simulated runtime.
var (
	obeys    = script{}
	slowly   = script{simulated: "term-after=30ms"}
	ignores  = script{simulated: "term=ignore", args: []string{"--ignore-term"}}
	crashes  = script{simulated: "exit=1 after=20ms attempts=2", crashes: 2}
	succeeds = script{simulated: "exit=0 after=50ms", args: []string{"--exit=0", "--after=50ms"}}
	fails    = script{simulated: "exit=3 after=10ms", args: []string{"--exit=3"}, exit: 3}
)

// workloads are what a test desires, by name.
type workloads struct {
	random  *rand.Rand
	image   string
	cpus    int      // how many CPUs pods may have alone, all together
	scripts []script // of what does not end
	well    []string // a command that succeeds in containers
	// direct: only pods come and go that need no other server than the API server, since the others
	// take up to a minute to notice that it is back.
	direct  bool
	of      map[string]*desired
	counter int
}

// gpus is how many devices are wanted at most. There are some more, and more CPUs than may be
// wanted: what is deleted by force holds them for a while.
const wantedGPUs, haveGPUs = 5, 10

func (w *workloads) names() []string { return slices.Sorted(maps.Keys(w.of)) }

// used is what all have alone.
func (w *workloads) used() (cpus, gpus int) {
	for _, o := range w.of {
		n := 1
		if o.kind == deployment {
			n = o.replicas + 1 // while it is rolled over
		}
		cpus, gpus = cpus+n*o.cpus, gpus+n*o.gpus
	}
	return cpus, gpus
}

// invent adds something.
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

// change adds, changes or removes something, and returns it.
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

// drop has things removed.
func (w *workloads) drop(which func(*desired) bool) {
	for _, o := range w.of {
		o.gone = o.gone || which(o)
	}
}

// pods is how many pods there are of it when all is quiet.
func (o *desired) pods() int {
	if o.kind == deployment {
		return o.replicas
	}
	return 1
}

// labels tell the pods of it.
func (o *desired) labels() map[string]string {
	return map[string]string{"want": o.name, "generation": strconv.Itoa(o.generation)}
}

// template is its pods. The node is chosen by the scheduler if there is one in play.
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

// attend gives the container of a pod probes and hooks that all succeed, as long as nobody has a hand in
// it, and memory to write to. The probes are patient with a slow machine.
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
