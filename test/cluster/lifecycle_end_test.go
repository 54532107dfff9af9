package cluster_test

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// endScenarios delete or evict pods, in each phase.
func endScenarios() []scenario {
	deleted := func(name, scripts, spec string, at func(*v1.Pod) bool) scenario {
		return scenario{name: "deleted-" + name, scripts: scripts, spec: spec,
			steps: []step{{until: at, stay: time.Second, do: remove(-1)}}}
	}
	slow := deleted("pulling", "", `{containers: [{name: main, image: "sim.local/late:1",
 imagePullPolicy: Always}]}`,
		is("main", 0, waiting("ContainerCreating")))
	slow.before = trouble(crisim.Fault{Method: "PullImage",
		Delay: metav1.Duration{Duration: 10 * time.Second}})
	return []scenario{
		slow,
		deleted("mounting", "", of(`volumes: [{name: v, configMap: {name: POD}}], `,
			`volumeMounts: [{name: v, mountPath: /v}]`), is("main", 0, waiting("ContainerCreating"))),
		deleted("init", "", `{initContainers: [{name: init, image: APP}],
 containers: [{name: main, image: APP}]}`, is("init", 0, running)),
		{name: "deleted-hooked", spec: of("terminationGracePeriodSeconds: 12, ",
			`lifecycle: {postStart: {sleep: {seconds: 8}}}`),
			steps: []step{{until: there, stay: 4 * time.Second, do: remove(-1)}}},
		{name: "deleted-crashing", scripts: "main: exit=1 after=3s", spec: onlyMain, steps: []step{
			{until: is("main", 1, waiting("CrashLoopBackOff")), do: remove(-1)}}},
		deleted("unpulled", "", `{containers: [{name: main, image: "sim.local/missing:1"}]}`,
			is("main", 0, waiting("ImagePullBackOff"))),
		deleted("done", "main: exit=0 after=3s", of("restartPolicy: Never, ", ""),
			isPhase(v1.PodSucceeded)),
		deleted("stopping", "main: term=ignore", of("terminationGracePeriodSeconds: 4, ", ""), isReady),
		deleted("slowly", "main: term=0 term-after=3s", of("terminationGracePeriodSeconds: 20, ", ""),
			isReady),
		deleted("pre-stop", "", of("terminationGracePeriodSeconds: 20, ",
			`lifecycle: {preStop: {sleep: {seconds: 4}}}`), isReady),
		deleted("pre-stop-fails", "", of("", `lifecycle: {preStop: {exec: {command: ["false"]}}}`),
			isReady),
		{name: "deleted-unready", scripts: "main: term-after=9s",
			spec: of("terminationGracePeriodSeconds: 20, ", `readinessProbe: {httpGet: {host: ANSWERS,
 port: PORT, path: /well/POD}, periodSeconds: 1, failureThreshold: 1}`), steps: []step{
				{until: isReady, stay: time.Second, do: remove(-1)},
				{until: isDeleted, stay: 3 * time.Second, do: sicken}}},
		deleted("sidecars", "main: term-after=4s; side: term-after=4s",
			`{terminationGracePeriodSeconds: 20, initContainers: [{name: side, image: APP,
 restartPolicy: Always}], containers: [{name: main, image: APP}]}`, isReady),
		{name: "deleted-twice", scripts: "main: term=ignore",
			spec: of("terminationGracePeriodSeconds: 12, ", ""), steps: []step{
				{until: isReady, do: remove(-1)}, {until: isDeleted, stay: 2 * time.Second, do: remove(1)}}},
		{name: "deleted-by-force", spec: onlyMain, steps: []step{{until: isReady, do: remove(0)}}},
		{name: "evicted", spec: of("terminationGracePeriodSeconds: 20, ",
			`lifecycle: {preStop: {sleep: {seconds: 2}}}`), steps: []step{
			{until: isReady, stay: time.Second, do: evict}}},
		{name: "drained", spec: of("terminationGracePeriodSeconds: 20, ",
			`lifecycle: {preStop: {sleep: {seconds: 2}}}`), steps: []step{
			{until: isReady, stay: time.Second, do: drain}}},
		{name: "patched-while-deleted", scripts: "main: term-after=4s",
			spec: of("terminationGracePeriodSeconds: 20, ", ""), steps: []step{
				{until: isReady, do: patch(`{"metadata":{"labels":{"app":"y"}}}`)},
				{do: remove(-1)},
				{until: isDeleted, stay: time.Second, do: patch(`{"metadata":{"labels":{"app":"z"}}}`)}}},
	}
}

// changeScenarios change running pods.
func changeScenarios() []scenario {
	debugger := v1.EphemeralContainerCommon{Name: "debug", Image: rootImage}
	failing := debugger
	failing.Image = "sim.local/missing:1"
	return []scenario{
		{name: "image-changed", spec: onlyMain, steps: []step{
			{until: isReady, stay: time.Second, do: useImage("main", userImage)},
			{until: is("main", 1, running), stay: time.Second}}},
		{name: "debugged", scripts: "debug: exit=5 after=4s", spec: onlyMain, steps: []step{
			{until: isReady, stay: time.Second, do: debug(debugger)},
			{until: is("debug", 0, terminated), stay: time.Second}}},
		{name: "debug-missing", spec: onlyMain, steps: []step{
			{until: isReady, stay: time.Second, do: debug(failing)},
			{until: is("debug", 0, waiting("ImagePullBackOff")), stay: time.Second}}},
		{name: "static", static: true, spec: onlyMain, steps: until(isReady)},
		{name: "static-replaced", static: true, spec: onlyMain, steps: []step{
			{until: isReady, stay: time.Second, do: rewrite(func(p *v1.Pod) { p.Labels["app"] = "y" })},
			{until: func(p *v1.Pod) bool { return p.Labels["app"] == "y" && runs(p) }, stay: time.Second}}},
		{name: "static-again", static: true, scripts: "main: term=0 term-after=3s",
			spec: of("terminationGracePeriodSeconds: 20, ", ""), steps: []step{
				{until: isReady, stay: time.Second, do: writeAgain(beingStopped)},
				{until: func(p *v1.Pod) bool { return is("main", 1, running)(p) && runs(p) },
					stay: 2 * time.Second}}},
	}
}

// restartScenarios kill and restart the agent under running pods.
func restartScenarios() []scenario {
	probe := func(kind string) string {
		return kind + `: {httpGet: {host: ANSWERS, port: PORT, path: /ok/POD}, periodSeconds: 1}`
	}
	over := func(name, scripts, spec string, at func(*v1.Pod) bool, down act,
		later func(*v1.Pod) bool) scenario {
		return scenario{name: "restart-" + name, scripts: scripts, spec: spec, steps: until(at), down: down,
			later: []step{{until: later, stay: 4 * time.Second}}}
	}
	static := over("static", "", of("", probe("startupProbe")+`, `+probe("readinessProbe")), isReady,
		nil, isReady)
	static.static = true
	return []scenario{
		over("plain", "", onlyMain, isReady, nil, isReady),
		over("probed", "", of("", probe("startupProbe")+`, `+probe("readinessProbe")+`, `+
			probe("livenessProbe")), isReady, nil, isReady),
		over("slow-probe", "", of("", `readinessProbe: {httpGet: {host: ANSWERS, port: PORT,
 path: /ok/POD}, periodSeconds: 10, initialDelaySeconds: 2}`), isReady, nil, isReady),
		over("sidecar", "", `{initContainers: [{name: init, image: "sim.local/exit:0"},
  {name: side, image: APP, restartPolicy: Always, `+probe("startupProbe")+`}],
 containers: [{name: main, image: APP}]}`, isReady, nil, isReady),
		over("gate", "", of("readinessGates: [{conditionType: example.com/gate}], ", ""),
			is("main", 0, running), gate("True"), isReady),
		over("succeeded", "main: exit=0 after=3s", of("restartPolicy: Never, ", ""),
			isPhase(v1.PodSucceeded), nil, isPhase(v1.PodSucceeded)),
		over("init", "", `{initContainers: [{name: init, image: APP}],
 containers: [{name: main, image: APP}]}`, is("init", 0, running), exit("init", crisim.Exit{}), isReady),
		over("init-runs", "", `{initContainers: [{name: init, image: APP}],
 containers: [{name: main, image: APP}]}`, is("init", 0, running), nil, is("init", 0, running)),
		over("exit", "", onlyMain, isReady, exit("main", crisim.Exit{Code: 3}), is("main", 1, running)),
		over("exit-never", "", of("restartPolicy: Never, ", ""), isReady,
			exit("main", crisim.Exit{Code: 3}), isPhase(v1.PodFailed)),
		over("sandbox", "", onlyMain, isReady, killSandbox, is("main", 1, running)),
		over("debugged", "", onlyMain, isReady, debug(v1.EphemeralContainerCommon{Name: "debug",
			Image: rootImage}), is("debug", 0, running)),
		over("crashing", "main: exit=1 attempts=3", onlyMain, is("main", 1, waiting("CrashLoopBackOff")),
			nil, is("main", 3, running)),
		over("rejected", "", of("", `resources: {requests: {cpu: 900}}`), isPhase(v1.PodFailed), nil,
			isPhase(v1.PodFailed)),
		{name: "restart-plugin", before: plugin(), spec: of("", devices), steps: until(isReady), later: []step{
			{until: isReady, do: both(devicesAreBack, exit("main", crisim.Exit{Code: 3}))},
			{until: is("main", 1, running), stay: time.Second}}},
		{name: "restart-deleted", spec: onlyMain, steps: until(isReady), down: remove(-1), later: []step{}},
		{name: "restart-stopping", scripts: "main: term-after=12s",
			spec:  of("terminationGracePeriodSeconds: 30, ", ""),
			steps: []step{{until: isReady, do: remove(-1)}, {until: isDeleted, stay: time.Second}},
			later: []step{}},
		static,
	}
}
