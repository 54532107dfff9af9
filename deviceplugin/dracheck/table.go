package dracheck

import (
	"slices"

	"github.com/numalet/numalet/deviceplugin/check"
)

// says returns the texts of a check.
func says(group, name, did, expected, why, hint string) check.Result {
	return check.Result{
		Group: group, Name: name, Did: did, Expected: expected, Why: why, Hint: hint,
	}
}

// table returns all checks in the order in which they run.
func table() []entry {
	return slices.Concat(registrationChecks(), prepareChecks(), restartChecks(), unprepareChecks(),
		healthChecks(), endChecks())
}

// selected returns the checks that are wanted, by their names or groups, and those that they need.
func selected(wanted []string) ([]entry, error) {
	all := table()
	var parts []check.Part
	for _, e := range all {
		parts = append(parts, check.Part{Group: e.Group, Name: e.Name, Needs: e.needs})
	}
	names, err := check.Select(parts, wanted)
	return slices.DeleteFunc(all, func(e entry) bool { return !names[e.Name] }), err
}

// Checks without which most others mean nothing.
func registered() []string { return []string{"registers"} }
func prepared(more ...string) []string {
	return append([]string{"registers", "prepares"}, more...)
}

func registrationChecks() []entry {
	return []entry{
		{Result: says("registration", "registers", "asked the driver who it is (GetInfo), and connected",
			"a valid name, an endpoint that serves, and a service that the kubelet knows",
			"a driver that cannot be registered gets no call, and pods with its claims wait",
			"list v1.DRAPlugin in supported_versions, and serve the endpoint before the socket in "+
				"plugins_registry"), run: checkRegisters},
		{Result: says("registration", "versions", "called each service that the driver lists",
			"each answers a call without claims",
			"which of them is called depends on the node's version",
			"list only services that you serve"), needs: registered(), run: checkVersions},
		{Result: says("prepare", "unknown-claim", "unprepared a claim that was never prepared",
			"success", "the agent unprepares what it may have sent, also after a restart of either "+
				"side: a pod whose claim cannot be unprepared never ends",
			"answer with success for a claim that is not prepared"), needs: registered(), run: checkUnknown},
	}
}

func prepareChecks() []entry {
	return []entry{
		{Result: says("prepare", "prepares", "prepared the claims in one call",
			"an answer for each of them, without an error", "the pod does not start without it",
			"answer for every claim of the call"), needs: registered(), claims: true, run: checkPrepares},
		{Result: says("prepare", "prepares-again", "prepared the same claims again",
			"the same answer", "the agent prepares again after each restart and each lost answer",
			"keep what was prepared by the claim's UID, and answer from it"),
			needs: prepared(), claims: true, run: checkAgain},
		{Result: says("prepare", "prepares-at-once", "prepared the same claims in eight calls at once",
			"the same answer, each time", "pods that share a claim start at the same time",
			"hold a lock for each claim while it is prepared"),
			needs: prepared("prepares-again"), claims: true, run: checkAtOnce},
		{Result: says("prepare", "cancelled", "cancelled calls, and prepared the claims again",
			"the same answer", "calls are cancelled when the agent ends",
			"leave nothing behind that another call trips over when the call's context ends"),
			needs:  prepared("prepares-again", "prepares-at-once"),
			claims: true, run: checkCancelled},
		{Result: says("prepare", "agent-restarts", "connected anew and prepared the claims again",
			"the same answer", "the agent is updated while pods run",
			"bind nothing to the connection"),
			needs:  prepared("prepares-again", "prepares-at-once", "cancelled"),
			claims: true, run: checkAgentRestarts},
		{Result: says("prepare", "cdi", "looked for the answers' CDI devices in the node's CDI files",
			"each is there", "the runtime refuses a container with an unknown CDI device",
			"write the CDI file before you answer, under the name that you answer"),
			needs: prepared(), claims: true, run: checkCDI},
		{Result: says("prepare", "slices", "looked for the devices of the answers in the ResourceSlices",
			"each is there", "schedulers and monitoring find a device by driver, pool and name",
			"answer with the names of the ResourceSlice"), needs: prepared(), claims: true, run: checkSlices},
	}
}

func unprepareChecks() []entry {
	return []entry{
		{Result: says("unprepare", "unprepares", "unprepared the claims in one call", "success for each",
			"a pod whose claim cannot be unprepared never ends", "answer for every claim of the call"),
			needs: prepared(), claims: true, run: checkUnprepares},
		{Result: says("unprepare", "unprepares-again", "unprepared the claims again", "success",
			"the agent repeats a call whose answer was lost",
			"answer with success for a claim that is not prepared"),
			needs: prepared("unprepares", "unknown-claim"), claims: true, run: checkUnprepares},
		{Result: says("unprepare", "prepares-anew", "prepared the claims once more, and unprepared them",
			"success", "a claim is used by one pod after the other",
			"forget a claim when it is unprepared"),
			needs: prepared("unprepares"), claims: true, run: checkAnew},
	}
}

func healthChecks() []entry {
	return []entry{
		{Result: says("health", "health", "waited for the first message of NodeWatchResources",
			"the health of the driver's devices", "without it the pod's status has no health",
			"send all devices at once when a stream begins, or do not list the service"),
			needs: registered(), run: checkHealth},
	}
}

func restartChecks() []entry {
	return []entry{
		{Result: says("restart", "driver-restarts",
			"killed the driver, started it, and prepared the claims again", "the same answer",
			"a driver is updated, and crashes, while pods have its devices",
			"keep what is prepared on disk, or derive it from the claim"),
			needs: prepared("prepares-again"), claims: true, starts: true, run: checkRestarts},
	}
}

func endChecks() []entry {
	return []entry{
		{Result: says("end", "stops", "asked the driver to end (SIGTERM)",
			"it ends, and its socket in plugins_registry is gone",
			"the agent takes a driver whose socket stays for one that will be back, and an update of "+
				"one that does not end waits for its grace period",
			"stop your servers and remove the socket when SIGTERM comes"),
			needs: registered(), starts: true, run: checkStops},
	}
}
