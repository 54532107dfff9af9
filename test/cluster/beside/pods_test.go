package beside

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
)

// pod is a pod for both agents.
type pod struct {
	// name is the pod's name. spec lacks the common fields.
	name, spec string
	// settled reports whether the status is one that lasts.
	settled func(*v1.Pod) bool
	// event is the reason of its last event.
	event string
}

// pods are the pods for both agents.
var pods = []pod{
	{"plain", `{containers: [{name: main, image: WORK}]}`, ready, "Started"},
	{"burstable", `{containers: [{name: b, image: WORK, resources: {
  requests: {cpu: 250m, memory: 32Mi}, limits: {memory: 64Mi, ephemeral-storage: 1Gi}}},
 {name: a, image: WORK, resources: {requests: {cpu: 1m}, limits: {cpu: 5m}}}]}`, ready, "Started"},
	{"guaranteed", `{initContainers: [
  {name: first, image: WORK, args: ["--exit=0"], resources: {limits: {cpu: 100m, memory: 32Mi}}},
  {name: aside, image: WORK, restartPolicy: Always,
   resources: {limits: {cpu: 100m, memory: 32Mi}}}],
 containers: [{name: main, image: WORK, resources: {limits: {cpu: 500m, memory: 64Mi}}}]}`,
		ready, "Started"},
	{"device", `{containers: [{name: main, image: WORK,
  resources: {limits: {example.com/gpu: 1}}}]}`, ready, "Started"},
	{"volumes", `{automountServiceAccountToken: true, volumes: [{name: scratch, emptyDir: {}},
  {name: words, configMap: {name: words}}, {name: host, hostPath: {path: /etc}}],
 containers: [{name: main, image: WORK, volumeMounts: [
  {name: scratch, mountPath: /scratch},
  {name: words, mountPath: /words, readOnly: true},
  {name: words, mountPath: /word, subPath: word},
  {name: host, mountPath: /host, readOnly: true, recursiveReadOnly: IfPossible}]}]}`,
		ready, "Started"},
	{"user", `{securityContext: {runAsUser: 1001, runAsGroup: 2002, fsGroup: 3003,
  supplementalGroups: [4004, 5005]}, containers: [{name: main, image: WORK},
 {name: other, image: WORK, securityContext: {runAsUser: 7007}}]}`, ready, "Started"},
	{"hostnetwork", `{hostNetwork: true, containers: [{name: main, image: WORK}]}`,
		ready, "Started"},
	{"probed", `{containers: [{name: main, image: WORK, readinessProbe: {periodSeconds: 1,
  exec: {command: [PROGRAM, container, work, "--exit=0"]}, timeoutSeconds: 30}},
 {name: other, image: WORK,
  readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1, failureThreshold: 1}}]}`,
		func(p *v1.Pod) bool {
			return p.Status.Phase == v1.PodRunning && slices.ContainsFunc(p.Status.ContainerStatuses,
				func(s v1.ContainerStatus) bool { return s.Ready })
		}, "Unhealthy"},
	{"succeeds", `{restartPolicy: Never, containers: [
  {name: main, image: WORK, args: ["--exit=0"]}]}`, ended(v1.PodSucceeded), "Started"},
	{"fails", `{restartPolicy: Never, containers: [
  {name: main, image: WORK, args: ["--exit=3"]}, {name: other, image: WORK, args: ["--exit=0"]}]}`,
		ended(v1.PodFailed), "Started"},
	{"initfails", `{restartPolicy: Never, initContainers: [
  {name: first, image: WORK, args: ["--exit=4"]}], containers: [{name: main, image: WORK}]}`,
		ended(v1.PodFailed), "Started"},
	{"crashes", `{containers: [{name: main, image: WORK, args: ["--exit=1"]}]}`,
		waits("CrashLoopBackOff"), "BackOff"},
	{"noimage", `{containers: [{name: main, image: "registry.numalet.test/none:1",
  imagePullPolicy: IfNotPresent, resources: {limits: {memory: 32Mi}}}]}`,
		waits("ImagePullBackOff"), "BackOff"},
	{"never", `{containers: [{name: main, image: "registry.numalet.test/none:1",
  imagePullPolicy: Never}]}`, waits("ErrImageNeverPull"), "ErrImageNeverPull"},
	{"noprogram", `{restartPolicy: Never, containers: [{name: main, image: WORK,
  command: [/none]}]}`, ended(v1.PodFailed), "Failed"},
	{"nosecret", `{containers: [{name: main, image: WORK,
  env: [{name: A, valueFrom: {secretKeyRef: {name: none, key: a}}}]}]}`,
		waits("CreateContainerConfigError"), "Failed"},
	{"novolume", `{volumes: [{name: words, configMap: {name: none}}],
 containers: [{name: main, image: WORK, resources: {requests: {cpu: 10m}},
  volumeMounts: [{name: words, mountPath: /words}]}]}`,
		waits("ContainerCreating"), "FailedMount"},
	{"toolarge", `{containers: [{name: main, image: WORK, resources: {requests: {cpu: 1k}}}]}`,
		rejected, "OutOfcpu"},
	{"gate", `{readinessGates: [{conditionType: example.com/gate}],
 containers: [{name: main, image: WORK}]}`, condition(v1.ContainersReady), "Started"},
}

// object returns the pod, bound to a node without the scheduler.
func (p pod) object(node string) (*v1.Pod, error) {
	made := &v1.Pod{}
	spec := strings.NewReplacer("WORK", containerd.WorkImage, "PROGRAM", containerd.Program).
		Replace(p.spec)
	if err := yaml.UnmarshalStrict([]byte(spec), &made.Spec); err != nil {
		return nil, err
	}
	made.Name, made.Spec.NodeName = p.name, node
	made.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	made.Spec.TerminationGracePeriodSeconds = new(int64)
	*made.Spec.TerminationGracePeriodSeconds = 1
	if made.Spec.AutomountServiceAccountToken == nil {
		made.Spec.AutomountServiceAccountToken = new(bool)
	}
	return made, nil
}

func ready(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning && condition(v1.PodReady)(p) }

func rejected(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed }

// ended reports whether the pod has this phase, and its sandbox has stopped.
func ended(as v1.PodPhase) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		return p.Status.Phase == as && !condition(v1.PodReadyToStartContainers)(p)
	}
}

func condition(want v1.PodConditionType) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == want {
				return c.Status == v1.ConditionTrue
			}
		}
		return false
	}
}

// waits reports whether a container waits for that reason, in a pod that gets no further.
func waits(reason string) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
				return p.Status.PodIP != "" || reason == "ContainerCreating"
			}
		}
		return false
	}
}
