package cluster_test

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// onlyMain is the spec of a pod with one container.
const onlyMain = `{containers: [{name: main, image: APP}]}`

// of returns onlyMain with further fields of the pod and of its container.
func of(pod, container string) string {
	return `{` + pod + `containers: [{name: main, image: APP, ` + container + `}]}`
}

func until(is func(*v1.Pod) bool) []step { return []step{{until: is, stay: time.Second}} }

// scenarios need only one run of the agent.
func scenarios() []scenario {
	return slices.Concat(startScenarios(), probeScenarios(), exitScenarios(), endScenarios(), changeScenarios())
}

func startScenarios() []scenario {
	const withInit = `{initContainers: [{name: init, image: APP}], containers: [{name: main, image: APP}]}`
	return []scenario{
		{name: "plain", spec: onlyMain, steps: until(isReady)},
		{name: "init-runs", scripts: "init: exit=0 after=3s", spec: withInit, steps: until(isReady)},
		{name: "init-fails-once", scripts: "init: exit=1 after=3s attempts=1", spec: withInit,
			steps: []step{{until: is("init", 1, running), stay: 2 * time.Second,
				do: exit("init", crisim.Exit{})}, {until: isReady, stay: time.Second}}},
		{name: "init-oom-once", scripts: "init: exit=0 after=3s reason=OOMKilled attempts=1", spec: withInit,
			steps: []step{{until: is("init", 1, running), stay: 2 * time.Second,
				do: exit("init", crisim.Exit{})}, {until: isReady, stay: time.Second}}},
		{name: "init-crashes", scripts: "init: exit=1 after=3s attempts=2", spec: withInit,
			steps: until(is("init", 2, running))},
		{name: "init-fails", scripts: "init: exit=3 after=4s",
			spec:  `{restartPolicy: Never, ` + withInit[1:],
			steps: until(isPhase(v1.PodFailed))},
		{name: "init-after-sidecar", scripts: "init: exit=0 after=4s",
			spec: `{initContainers: [{name: side, image: APP, restartPolicy: Always, startupProbe:
  {httpGet: {host: ANSWERS, port: PORT, path: /fails-1-to-2/POD}, periodSeconds: 1}},
 {name: init, image: APP}], containers: [{name: main, image: APP}]}`, steps: until(isReady)},
		{name: "hook-runs", spec: of("terminationGracePeriodSeconds: 30, ",
			`lifecycle: {postStart: {sleep: {seconds: 4}}}`),
			steps: until(isReady)},
		{name: "hook-fails", spec: of("", `lifecycle: {postStart: {httpGet:
 {host: ANSWERS, port: PORT, path: /garbles-to-2/POD}}}`), steps: until(is("main", 2, running))},
		{name: "image-missing", spec: `{containers: [{name: main, image: "sim.local/missing:1"}]}`,
			steps: []step{{until: is("main", 0, waiting("ImagePullBackOff")), stay: 12 * time.Second}}},
		{name: "image-comes", spec: `{containers: [{name: main, image: "sim.local/missing:1"}]}`,
			steps: []step{{until: is("main", 0, waiting("ImagePullBackOff")), stay: 2 * time.Second,
				do: useImage("main", userImage)}, {until: isReady, stay: time.Second}}},
		{name: "image-slow", before: trouble(crisim.Fault{Method: "PullImage",
			Delay: metav1.Duration{Duration: 4 * time.Second}}),
			spec:  `{containers: [{name: main, image: "sim.local/slow:1", imagePullPolicy: Always}]}`,
			steps: until(isReady)},
		{name: "image-invalid", spec: `{containers: [{name: main, image: "sim.local/UPPER:1"}]}`,
			steps: until(is("main", 0, waiting("InvalidImageName")))},
		{name: "image-never", spec: `{containers: [{name: main, image: "sim.local/none:1",
  imagePullPolicy: Never}]}`, steps: until(is("main", 0, waiting("ErrImageNeverPull")))},
		{name: "create-fails-once", before: trouble(crisim.Fault{Method: "CreateContainer",
			Error: "no room", Count: 1}), spec: onlyMain, steps: until(isReady)},
		{name: "sandbox-fails-once", before: trouble(crisim.Fault{Method: "RunPodSandbox",
			Error: "no network", Count: 1}), spec: onlyMain, steps: until(isReady)},
		{name: "secret-comes", spec: of("",
			`env: [{name: A, valueFrom: {secretKeyRef: {name: POD, key: k}}}]`),
			steps: []step{{until: is("main", 0, waiting("CreateContainerConfigError")),
				stay: 2 * time.Second, do: object("Secret", "POD")}, {until: isReady, stay: time.Second}}},
		{name: "volume-comes", spec: of(`volumes: [{name: v, configMap: {name: POD}}], `,
			`volumeMounts: [{name: v, mountPath: /v}]`),
			steps: []step{{until: is("main", 0, waiting("ContainerCreating")),
				stay: 3 * time.Second, do: object("ConfigMap", "POD")},
				{until: isReady, stay: time.Second}}},
		{name: "rejected", spec: of("", `resources: {requests: {cpu: 900}}`),
			steps: until(isPhase(v1.PodFailed))},
	}
}

func probeScenarios() []scenario {
	probe := func(kind, path string) string {
		return kind + `: {httpGet: {host: ANSWERS, port: PORT, path: /` + path +
			`/POD}, periodSeconds: 1, failureThreshold: 1}`
	}
	return []scenario{
		{name: "ready-late", spec: of("", probe("readinessProbe", "fails-1-to-3")), steps: until(isReady)},
		{name: "ready-goes", spec: of("", probe("readinessProbe", "fails-5-to-9")),
			steps: []step{{until: isReady, stay: 7 * time.Second}}}, // longer than it needs to disappear
		{name: "live-fails", spec: of("", probe("livenessProbe", "fails-5-to-5")),
			steps: until(is("main", 1, running))},
		{name: "live-fails-never", spec: of("restartPolicy: Never, ",
			probe("livenessProbe", "fails-5-to-5")), steps: until(isPhase(v1.PodFailed))},
		{name: "starts-second", spec: of("", `startupProbe: {httpGet: {host: ANSWERS,
 port: PORT, path: /fails-1-to-3/POD}, periodSeconds: 2, failureThreshold: 3}`),
			steps: until(is("main", 1, running))},
		{name: "starts-late", spec: of("", `startupProbe: {httpGet: {host: ANSWERS, port: PORT,
 path: /fails-1-to-3/POD}, periodSeconds: 1, failureThreshold: 9}`), steps: until(isReady)},
		{name: "starts-then-ready", spec: of("", `startupProbe: {exec: {command: ["true"]},
 initialDelaySeconds: 3, periodSeconds: 1}, `+probe("readinessProbe", "fails-1-to-2")),
			steps: until(isReady)},
		{name: "gate", spec: of("readinessGates: [{conditionType: example.com/gate}], ", ""),
			steps: []step{{until: is("main", 0, running), stay: 2 * time.Second, do: gate("True")},
				{until: isReady, stay: 2 * time.Second, do: gate("False")},
				{until: isNotReady, stay: 2 * time.Second, do: gate("True")},
				{until: isReady, stay: time.Second}}},
	}
}

func exitScenarios() []scenario {
	never, onFailure := "restartPolicy: Never, ", "restartPolicy: OnFailure, "
	const two = `containers: [{name: main, image: APP}, {name: second, image: APP}]}`
	return []scenario{
		{name: "crashes", scripts: "main: exit=1 after=3s message=words attempts=2",
			spec: onlyMain, steps: until(is("main", 2, running))},
		{name: "exits-always", scripts: "main: exit=0 after=3s attempts=2", spec: onlyMain,
			steps: until(is("main", 2, running))},
		{name: "succeeds", scripts: "main: exit=0 after=4s", spec: of(never, ""),
			steps: until(isPhase(v1.PodSucceeded))},
		{name: "fails", scripts: "main: exit=3 after=4s message=words", spec: of(never, ""),
			steps: until(isPhase(v1.PodFailed))},
		{name: "oom", scripts: "main: exit=137 after=4s reason=OOMKilled", spec: of(never, ""),
			steps: until(isPhase(v1.PodFailed))},
		{name: "oom-again", scripts: "main: exit=137 after=4s reason=OOMKilled attempts=1", spec: onlyMain,
			steps: until(is("main", 1, running))},
		{name: "fails-then-succeeds", scripts: "main: exit=1 after=3s attempts=1",
			spec: of(onFailure, ""), steps: []step{{until: is("main", 1, running),
				stay: 3 * time.Second, do: exit("main", crisim.Exit{})},
				{until: isPhase(v1.PodSucceeded), stay: time.Second}}},
		{name: "one-of-two-ends", scripts: "main: exit=0 after=4s; second: exit=4 after=9s",
			spec: `{restartPolicy: Never, ` + two, steps: until(isPhase(v1.PodFailed))},
		{name: "one-of-two-crashes", scripts: "second: exit=4 after=4s attempts=2",
			spec: `{` + two, steps: until(is("second", 2, running))},
		{name: "sidecar-again", scripts: "side: exit=1 after=4s attempts=1",
			spec: `{initContainers: [{name: side, image: APP, restartPolicy: Always}],
 containers: [{name: main, image: APP}]}`, steps: until(is("side", 1, running))},
		{name: "job-with-sidecar", scripts: "main: exit=0 after=3s",
			spec: `{restartPolicy: Never, initContainers: [{name: side, image: APP,
  restartPolicy: Always}], containers: [{name: main, image: APP}]}`,
			steps: until(isPhase(v1.PodSucceeded))},
		{name: "deadline", spec: of("activeDeadlineSeconds: 4, ", ""),
			steps: until(isPhase(v1.PodFailed))},
		{name: "rule-restarts", scripts: "main: exit=7 after=4s attempts=1",
			spec: of(never, `restartPolicy: Never, restartPolicyRules: [{action: Restart,
 exitCodes: {operator: In, values: [7]}}]`), steps: until(is("main", 1, running))},
		{name: "rule-restarts-all",
			scripts: "main: exit=7 after=9s attempts=1; side: exit=0 after=3s attempts=1",
			spec: `{initContainers: [{name: init, image: "sim.local/exit:0"}, {name: side, image: APP,
  restartPolicy: Always}], containers: [{name: main, image: APP, restartPolicy: Never,
  restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [7]}}]}]}`,
			steps: until(is("main", 1, running))},
		{name: "sandbox-dies-never", spec: of(never, ""), steps: []step{
			{until: isReady, stay: time.Second, do: killSandbox},
			{until: isPhase(v1.PodFailed), stay: 3 * time.Second}}},
		{name: "sandbox-dies", spec: onlyMain, steps: []step{{until: isReady, stay: time.Second,
			do: killSandbox}, {until: is("main", 1, running), stay: time.Second}}},
	}
}
