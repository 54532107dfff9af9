package source

import (
	"strings"
	"testing"
)

// edit is a small change to a good pod, and the error that it causes.
type edit struct{ change, want string }

func refused(t *testing.T, tests []edit) {
	t.Helper()
	for _, tt := range tests {
		_, err := readPod(fromFile, edited(t, tt.change))
		switch {
		case err == nil:
			t.Errorf("%s\n  was accepted", tt.change)
		case !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s\n  error %s\n  want  %s", tt.change, err, tt.want)
		case strings.ContainsAny(err.Error(), "\n"):
			t.Errorf("%s: several lines: %q", tt.change, err)
		}
	}
}

// TestRefusedLives does the same for probes, hooks and restart rules.
func TestRefusedLives(t *testing.T) {
	refused(t, []edit{
		{`{spec: {containers: [{name: c, image: i, restartPolicy: Sometimes}]}}`,
			`spec.containers[0].restartPolicy: Unsupported value: "Sometimes"`},
		{`{spec: {initContainers: [{name: i, image: i, restartPolicy: Sometimes}]}}`,
			`spec.initContainers[0].restartPolicy: Unsupported value: "Sometimes"`},
		{`{spec: {initContainers: [{name: i, image: i, restartPolicy: Never, lifecycle: {}}]}}`,
			"spec.initContainers[0].lifecycle: Forbidden"},
		{`{spec: {containers: [{name: c, image: i, restartPolicyRules: [{action: Restart,
			exitCodes: {operator: In, values: [1]}}]}]}}`,
			"spec.containers[0].restartPolicy: Required value: a container with restartPolicyRules"},
		{`{spec: {containers: [{name: c, image: i, restartPolicy: Never,
			restartPolicyRules: [{action: Restart}]}]}}`,
			"spec.containers[0].restartPolicyRules[0].exitCodes: Required value"},
		{`{spec: {containers: [{name: c, image: i, restartPolicy: Never, restartPolicyRules: [
			{action: Hope, exitCodes: {operator: Near}}]}]}}`,
			`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Hope"`},
		{`{spec: {containers: [{name: c, image: i, startupProbe: {exec: {}, successThreshold: 2}}]}}`,
			"spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1"},
		{`{spec: {containers: [{name: c, image: i,
			readinessProbe: {exec: {}, terminationGracePeriodSeconds: 2}}]}}`,
			"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Forbidden"},
		{`{spec: {containers: [{name: c, image: i,
			livenessProbe: {exec: {}, terminationGracePeriodSeconds: 0}}]}}`,
			"spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0"},
		{`{spec: {containers: [{name: c, image: i, lifecycle: {preStop: {}}}]}}`,
			"spec.containers[0].lifecycle.preStop: Invalid value: \"\": must have exactly one of"},
	})
}
