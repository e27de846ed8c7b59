package boot_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

// Where the time of a boot went, and what would help.
func Example() {
	data, err := os.ReadFile(filepath.Join("testdata", "published", "cloud-final.show"))
	if err != nil {
		log.Fatal(err)
	}
	capture, err := read.Bytes(data) // or read.Folder("sosreport-node-7")
	if err != nil {
		log.Fatal(err)
	}
	analysis, err := boot.Analyze(capture, boot.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(analysis.Goal, "after", analysis.GoalAt.Net)
	for _, cost := range analysis.Costs[:3] {
		fmt.Println(cost.Net, cost.What)
	}
	// Output:
	// cloud-final.service after 47.458s
	// 20.216s cloud-init.service
	// 11.703s cloud-final.service
	// 6.098s cloud-init-local.service
}
