package eni

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/sets"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/deviceplugin/socket"
)

const (
	heldDeadline = 5 * time.Second
	maxHeld      = 64 << 20
)

// heldBy asks the agent's pod resources socket which devices of the resources pods hold.
func heldBy(ctx context.Context, path string, resources sets.Set[string]) (map[string]bool,
	error) {
	resp, err := ask(ctx, path, podresources.PodResourcesListerClient.List,
		&podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask %s which interfaces pods have: %w", path, err)
	}
	held := map[string]bool{}
	for _, pod := range resp.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, d := range container.GetDevices() {
				if !resources.Has(d.GetResourceName()) {
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

// listedBy asks the agent which devices plugins list: their resources, by id.
func listedBy(ctx context.Context, path string) (map[string]string, error) {
	resp, err := ask(ctx, path, podresources.PodResourcesListerClient.GetAllocatableResources,
		&podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask %s which devices plugins list: %w", path, err)
	}
	listed := map[string]string{}
	for _, d := range resp.GetDevices() {
		for _, id := range d.GetDeviceIds() {
			listed[id] = d.GetResourceName()
		}
	}
	return listed, nil
}

// call is a method of the pod resources service.
type call[Q, A any] func(podresources.PodResourcesListerClient, context.Context, *Q,
	...grpc.CallOption) (*A, error)

// ask asks the agent's pod resources socket.
func ask[Q, A any](ctx context.Context, path string, what call[Q, A], question *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, heldDeadline)
	defer cancel()
	conn, err := socket.Client(path,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHeld)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return what(podresources.NewPodResourcesListerClient(conn), ctx, question)
}
