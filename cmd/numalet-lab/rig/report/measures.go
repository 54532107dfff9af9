package report

import "github.com/numalet/numalet/cmd/numalet-lab/rig"

// measure is the name of a number and a sentence that explains it.
type measure struct{ Name, Meaning string }

func measures(r rig.Report) []measure {
	others := "The others were rejected at once."
	if r.Workload.Wait > 0 {
		others = "A pod without a place was tried again whenever another left, and rejected when " +
			"it had waited for too long; \"waited\" counts those that were admitted later."
	}
	out := []measure{
		{"admitted", "pods that got all they asked for. " + others},
		{"aligned", "of the admitted pods that got CPUs of their own, placed memory or devices, " +
			"those with all of it on one NUMA node."},
		{"nodes", "NUMA nodes that such a pod got something of, on average. 1 is best."},
		{"distance",
			"mean firmware distance between the nodes of a pod. 10 is local, more is slower."},
		{"used", "share of what pods can have that running pods request, averaged up to the last " +
			"arrival."},
		{"fragmented", "how much smaller the largest request that one node can take is than if " +
			"all that is free lay together (at most a whole node). 0% is best. Of CPUs, devices, " +
			"and, where the memory manager places them, bytes of memory and of huge pages."},
		{"stranded", "share of all devices that are free on a node with fewer free CPUs than the " +
			"smallest container asking for such a device needs."},
	}
	if podLevel(r) {
		out = append(out, measure{"own", "containers of the admitted pods that have CPUs of their own. Those " +
			"under pod's share CPUs of their pod's pool with others of the pod, those under node's with all pods."})
	}
	out = append(out, resizeMeasures(r)...)
	for _, o := range r.Policies {
		if o.Placement.Pairs > 0 {
			out = append(out, measure{"paired", "pairs of devices of two resources in one container, as " +
				"GPUs and network cards, that share a PCIe switch."})
			break
		}
	}
	for _, o := range r.Policies {
		if o.Timing != nil {
			return append(out, measure{"p50, p99", "time to decide on a pod on the computer that " +
				"ran this, of half and of 99% of all decisions."})
		}
	}
	return out
}
