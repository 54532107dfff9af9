package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dracheck"
	"github.com/numalet/numalet/deviceplugin/dradriver"
)

const (
	node = "node-a"
	// asDriver is the environment variable with which this executable is the driver.
	asDriver = "BE_THE_DRIVER"
)

// TestMain lets this executable be the driver, so that the check can kill it. In place of an API server
// it has a client that knows the claims of the test.
func TestMain(m *testing.M) {
	if os.Getenv(asDriver) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, claim("a"), claim("b"))
	cfg := dradriver.Config{Driver: driverName, Node: node, Root: os.Args[1], CDI: os.Args[2],
		Program: "widgets-driver", Client: client}
	if err := run(ctx, cfg, os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

// claim returns a claim to which the device of that name is allocated.
func claim(device string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "claim-" + device, Namespace: "default", UID: types.UID("uid-" + device),
		},
		Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{
					{Request: "one", Driver: driverName, Pool: node, Device: device},
				},
			},
		}},
	}
}

// The driver is put through what happens to drivers on nodes.
func TestDriver(t *testing.T) {
	folder, cdi := t.TempDir(), t.TempDir()
	var claims []dra.Claim
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("fine"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := claim(name)
		claims = append(claims, dra.Claim{Namespace: c.Namespace, Name: c.Name, UID: c.UID})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dracheck.Test(t, dracheck.Config{
		Command: fmt.Sprintf("env %s=yes '%s' {root} '%s' '%s'", asDriver, self, cdi, folder),
		Driver:  driverName, Claims: claims, CDI: []string{cdi}, Output: t.Output(),
	})
}
