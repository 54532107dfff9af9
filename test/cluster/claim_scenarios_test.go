package cluster_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/cluster/histories"
)

// TestClaimScenarios: the same happens to the same pods with resource claims on numalet and on the
// stock kubelet. Their drivers, Kubernetes' test driver, get the same calls in the same order, the
// runtime the same CDI devices, and monitoring agents and the checkpoint tell the same. The other
// intended differences are in meantClaims.
//
// NUMALET_SCENARIOS and NUMALET_SCENARIOS_TRIES are as for TestLifecycleScenarios. NUMALET_CLAIM_AGENT
// "both" adds scenarios that take minutes. With the name of an agent only that one runs, its scenarios
// have to come to their ends, and its records are shown.
func TestClaimScenarios(t *testing.T) {
	asked := os.Getenv("NUMALET_CLAIM_AGENT")
	only := cmp.Or(asked, "both")
	if only != "both" && !slices.Contains(agents, only) {
		t.Fatalf("NUMALET_CLAIM_AGENT is %q: it may be numalet, kubelet or both", only)
	}
	port, servers := newProbeServers(t, len(agents))
	var sides []*scenarioNode
	for i, agent := range agents {
		if only == "both" || only == agent {
			sides = append(sides, newScenarioNode(t, agent, fmt.Sprint(port), servers[i]))
			sides[len(sides)-1].followClaims(t)
		}
	}
	allowAdmin(t, sides)
	groups := slices.Collect(slices.Chunk(claimScenarios(), claimsAtOnce))
	restarts := claimRestarts()
	if asked != "" {
		restarts = append(restarts, longClaimRestart())
	}
	groups = append(groups, restarts)
	meant, whole := &histories.Comparison{Meant: meantClaims}, true
	for _, some := range groups {
		named := slices.DeleteFunc(slices.Clone(some), func(s scenario) bool {
			return !chosen(t).MatchString(s.name)
		})
		whole = whole && len(named) == len(some)
		if len(sides) == 1 {
			for _, failed := range playAll(t, sides, named, 1) {
				t.Error(failed)
			}
			sides[0].show(t, named)
			continue
		}
		runUntilAlike(t, sides, named, meant)
	}
	for _, m := range meant.Unmet() {
		if whole && len(sides) > 1 {
			t.Errorf("nothing differs as in this difference that is meant: %+v", m)
		}
	}
}

// claimsAtOnce bounds the scenarios at the same time: each has a driver of its own on each node.
const claimsAtOnce = 12

// oneClaim is a pod's part with a claim from the template POD.
const oneClaim = `resourceClaims: [{name: gpu, resourceClaimTemplateName: POD}], `

const usesClaim = `resources: {claims: [{name: gpu}]}`

// Objects of scenarios. The class POD has the devices of the driver POD.io.
const (
	deviceClass = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: POD}, spec: {
 selectors: [{cel: {expression: 'device.driver == "POD.io"'}}]}}`
	claimTemplate = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: POD},
 spec: {metadata: {labels: {of: POD}}, spec: {devices: {requests: [
 {name: one, exactly: {deviceClassName: POD}}]}}}}`
	secondClass = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: b-POD},
 spec: {selectors: [{cel: {expression: 'device.driver == "b-POD.io"'}}]}}`
	twoRequests = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: POD},
 spec: {metadata: {labels: {of: POD}}, spec: {devices: {requests: [
 {name: one, exactly: {deviceClassName: POD}}, {name: two, exactly: {deviceClassName: CLASS}}]}}}}`
	namedClaim = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim,
 metadata: {name: POD-named, labels: {of: POD}},
 spec: {devices: {requests: [{name: one, exactly: {deviceClassName: POD}}]}}}`
	adminTemplate = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: POD},
 spec: {metadata: {labels: {of: POD}}, spec: {devices: {requests: [
 {name: one, exactly: {deviceClassName: POD, adminAccess: true}}]}}}}`
	extendedClass = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: POD}, spec: {
 extendedResourceName: claims.example.com/POD,
 selectors: [{cel: {expression: 'device.driver == "POD.io"'}}]}}`
)

func claimScenarios() []scenario {
	usual := both(claimDriver("POD.io"), claimObjects(deviceClass, claimTemplate))
	withNamed := both(claimDriver("POD.io"), claimObjects(deviceClass, namedClaim))
	useNamed := `resourceClaims: [{name: gpu, resourceClaimName: POD-named}], `
	pod := of(oneClaim, usesClaim)
	ready := func(does ...act) []step { return []step{{until: isReady, stay: time.Second, do: all(does...)}} }
	return slices.Concat([]scenario{
		{name: "template", before: usual, spec: pod, steps: ready(mark("runs"))},
		{name: "shared", before: withNamed, spec: of(useNamed, usesClaim), steps: ready(mark("alone"),
			another(of(useNamed, usesClaim)), mark("both"), endOther, mark("alone again"))},
		{name: "two-drivers", spec: pod, steps: ready(mark("runs")),
			before: all(claimDriver("POD.io"), claimDriver("b-POD.io"),
				claimObjects(deviceClass, secondClass, useClass(twoRequests, "b-POD")))},
		{name: "request", spec: `{` + oneClaim + `containers: [
 {name: main, image: APP, resources: {claims: [{name: gpu, request: one}]}},
 {name: second, image: APP, resources: {claims: [{name: gpu, request: two}]}},
 {name: third, image: APP}]}`, before: both(claimDriver("POD.io"),
			claimObjects(deviceClass, useClass(twoRequests, "POD"))), steps: ready(mark("runs"))},
		{name: "admin", before: both(claimDriver("POD.io"), claimObjects(deviceClass, adminTemplate)), spec: pod,
			steps: ready(mark("runs"))},
		{name: "init", before: usual, scripts: "init: exit=0 after=3s", spec: `{` + oneClaim + `
 initContainers: [{name: init, image: APP, ` + usesClaim + `},
 {name: side, image: APP, restartPolicy: Always, ` + usesClaim + `}],
 containers: [{name: main, image: APP}]}`, steps: ready(mark("runs"))},
		{name: "extended", before: both(claimDriver("POD.io"), claimObjects(extendedClass)),
			spec:  of("", `resources: {limits: {claims.example.com/POD: 2}}`),
			steps: ready(mark("runs"), sick, waitFor(5*time.Second), mark("sick"))},
		{name: "sick", before: both(claimDriver("POD.io"),
			claimObjects(deviceClass, useClass(twoRequests, "POD"))), spec: `{` + oneClaim + `
 initContainers: [{name: init, image: APP, ` + usesClaim + `},
 {name: side, image: APP, restartPolicy: Always, ` + usesClaim + `}],
 containers: [{name: main, image: APP, ` + usesClaim + `},
 {name: second, image: APP, resources: {claims: [{name: gpu, request: two}]}}]}`,
			scripts: "init: exit=0 after=1s", steps: []step{
				{until: isReady, stay: time.Second, do: both(mark("runs"), sick)},
				{until: saysSick, stay: time.Second, do: mark("sick")}}},
		{name: "unused", before: usual, spec: of(oneClaim, ""), steps: ready(mark("runs"))},
	}, claimEnds(usual, pod), claimTroubles(usual, pod))
}

func claimEnds(usual act, pod string) []scenario {
	return []scenario{
		{name: "ends", before: usual, scripts: "main: exit=0 after=4s",
			spec:  of("restartPolicy: Never, "+oneClaim, usesClaim),
			steps: []step{{until: isPhase(v1.PodSucceeded), stay: 2 * time.Second, do: mark("has ended")}}},
		{name: "exits", before: usual, scripts: "main: exit=1 after=4s attempts=1", spec: pod,
			steps: []step{{until: is("main", 1, running), stay: time.Second, do: mark("again")}}},
		{name: "forced", before: usual, spec: pod,
			steps: []step{{until: isReady, stay: time.Second, do: remove(0)}}},
		{name: "sandbox", before: usual, spec: pod, steps: []step{
			{until: isReady, stay: time.Second, do: both(mark("runs"), killSandbox)},
			{until: is("main", 1, running), stay: time.Second, do: mark("again")}}},
		{name: "rejected", before: both(usual, plugin(pluginsim.Fault{RPC: pluginsim.Allocate,
			Code: "INTERNAL", Message: "it is broken"})),
			spec: of(oneClaim, `resources: {limits: {example.com/POD: 2}, claims: [{name: gpu}]}`),
			steps: []step{{until: isPhase(v1.PodFailed), stay: 2 * time.Second,
				do: mark("is rejected")}}},
		{name: "ends-slowly", before: both(usual, slowUnprepare), scripts: "main: exit=0 after=4s",
			spec:  of("restartPolicy: Never, "+oneClaim, usesClaim),
			steps: []step{{until: isPhase(v1.PodSucceeded), stay: 2 * time.Second, do: mark("has ended")}}},
		{name: "unprepare-fails", before: both(usual, failOnce("NodeUnprepareResources")), spec: pod,
			steps: until(isReady)},
		{name: "end-away", before: usual, spec: pod, steps: []step{
			{until: isReady, stay: time.Second, do: all(stopDriver, remove(-1))},
			{until: isDeleted, stay: 4 * time.Second, do: both(mark("is to end"), startDriver)}}},
	}
}

func claimTroubles(usual act, pod string) []scenario {
	return []scenario{
		{name: "away", before: both(usual, awayDriver), spec: pod, steps: []step{
			{until: isBound, stay: 4 * time.Second, do: both(mark("waits"), startDriver)},
			{until: isReady, stay: time.Second}}},
		{name: "fails-once", before: both(usual, failOnce("NodePrepareResources")), spec: pod,
			steps: until(isReady)},
		{name: "fails", before: both(usual, failAlways("NodePrepareResources")), spec: pod,
			steps: []step{{until: isBound, stay: 4 * time.Second, do: mark("waits")}}},
		{name: "slow", before: both(usual, slowPrepare), spec: pod, steps: until(isReady)},
		{name: "slow-deleted", before: both(usual, slowPrepare), spec: pod, steps: []step{
			{until: isBound, stay: time.Second, do: remove(-1)}}},
		{name: "rolling", before: usual, spec: pod, steps: []step{
			{until: isReady, stay: time.Second, do: all(mark("first"), roll, mark("second"))}}},
		{name: "killed", before: usual, spec: pod, steps: []step{
			{until: isReady, stay: time.Second, do: all(killDriver, startDriver, mark("driver is back"))}}},
		{name: "unallocated", before: both(claimDriver("POD.io"), claimObjects(deviceClass, namedClaim)), bound: true,
			spec:  of(`resourceClaims: [{name: gpu, resourceClaimName: POD-named}], `, usesClaim),
			steps: []step{{until: there, stay: 4 * time.Second, do: mark("waits")}}},
	}
}

// claimRestarts have the agent killed in between.
func claimRestarts() []scenario {
	usual := both(claimDriver("POD.io"), claimObjects(deviceClass, claimTemplate))
	pod := of(oneClaim, usesClaim)
	before := []step{{until: isReady, stay: time.Second, do: mark("before")}}
	after := []step{{until: isReady, stay: 3 * time.Second, do: mark("after")}}
	return []scenario{
		{name: "restart-runs", before: usual, spec: pod, steps: before, later: after},
		{name: "restart-deleted", before: usual, spec: pod, steps: before, down: remove(-1),
			later: []step{}},
		{name: "restart-exits", before: usual, spec: pod, steps: before,
			down:  exit("main", crisim.Exit{Code: 3}),
			later: []step{{until: is("main", 1, running), stay: 2 * time.Second, do: mark("after")}}},
		{name: "restart-succeeds", before: usual, spec: of("restartPolicy: Never, "+oneClaim, usesClaim),
			steps: before, down: exit("main", crisim.Exit{}),
			later: []step{{until: isPhase(v1.PodSucceeded), stay: 2 * time.Second, do: mark("after")}}},
		{name: "restart-driver", before: usual, spec: pod, steps: before, down: stopDriver,
			later: []step{{until: isReady, stay: 3 * time.Second, do: both(mark("away"), startDriver)}}},
		{name: "restart-waits", before: both(usual, stopDriver), spec: pod,
			steps: []step{{until: isBound, stay: 2 * time.Second}}, down: startDriver,
			later: []step{{until: isReady, stay: time.Second, do: mark("after")}}},
		{name: "restart-ended", before: usual, scripts: "main: exit=0 after=4s",
			spec:  of("restartPolicy: Never, "+oneClaim, usesClaim),
			steps: []step{{until: isPhase(v1.PodSucceeded), stay: 2 * time.Second, do: mark("before")}},
			later: []step{{until: isPhase(v1.PodSucceeded), stay: 3 * time.Second, do: mark("after")}}},
	}
}

// longClaimRestart has a pod vanish while the agent is away: agents look for such a minute later.
func longClaimRestart() scenario {
	return scenario{name: "restart-forced",
		before: both(claimDriver("POD.io"), claimObjects(deviceClass, claimTemplate)),
		spec:   of(oneClaim, usesClaim), down: remove(0), later: []step{},
		steps: []step{{until: isReady, stay: time.Second, do: mark("before")}}}
}
