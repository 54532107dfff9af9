package eni

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	heldDeadline = 5 * time.Second
	maxHeld      = 64 << 20
)

// heldBy asks the agent, at its pod resources socket, which devices of the resources pods have.
func heldBy(ctx context.Context, path string, resources []string) (map[string]bool,
	error) {
	ctx, cancel := context.WithTimeout(ctx, heldDeadline)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHeld)),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	resp, err := podresources.NewPodResourcesListerClient(conn).List(ctx,
		&podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask %s which interfaces pods have: %w", path, err)
	}
	held := map[string]bool{}
	for _, pod := range resp.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, d := range container.GetDevices() {
				if !slices.Contains(resources, d.GetResourceName()) {
					continue
				}
				for _, id := range d.GetDeviceIds() {
					held[id] = true
				}
			}
		}
	}
	return held, nil
}
