// Package report tells what comes of pods in admission: outcomes, events, and the explanation of the last decision
// on each pod. It decides nothing.
package report
