package emulator_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"kamino.dev/kamino/azure/emulator"
)

// A scale set of one machine, which is told to go off: the answer comes at once, the power goes
// when the operation has ended.
func Example() {
	clock := emulator.NewVirtualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	cloud := &emulator.Server{Clock: clock}
	defer cloud.Close()
	cloud.Seed(emulator.Scenario{Pools: []emulator.Pool{{Name: "pool1", Count: 1}}})
	server := httptest.NewServer(cloud)
	defer server.Close()

	id := cloud.Instances()[0].ID
	request, err := http.NewRequest(http.MethodPost, server.URL+id+"/powerOff?api-version=2024-11-01", nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+cloud.Token())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	clock.Advance(5 * time.Minute)
	machine, _ := cloud.Instance(id)
	fmt.Println(machine.PowerState)
	// Output:
	// 202 Accepted
	// PowerState/stopped
}
