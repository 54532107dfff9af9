// Package line holds the pods of admission in the order of arrival, with the ledgers of what they have,
// and goes through them: a Pass decides on each pod that is queued and tells its record, by way of a
// Shell. No later pod gets what is claimed.
//
// If several pods want devices of one resource, its plugin is asked for a preference for one pod after
// the other. While it is asked about a pod, the devices that the pod would get otherwise are a guess;
// what is free for the next pod is known once the guess has become a choice. A pod has the turn for all
// resources whose plugins have preferences, from the first question until it has a place. The other
// pods stand in line in the order of arrival. They have guesses too, so that later pods that want other
// things do not get ahead of them.
//
// While a plugin takes its time, the pod has no turn for resources that it was not asked about yet:
// pods that want only these go on beside its guess.
//
// A guess does not count for earlier pods, and is no reason to reject: a pod that would have a place
// but for a guess waits until the guess is settled.
package line
