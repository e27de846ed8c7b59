// Package prove puts images to the proof in a lab: bad ones, good ones, and clouds, registries and
// clusters that are to blame themselves. What is wrong is only how a simulated machine or cloud
// behaves; the engine sees what it would see of real ones.
package prove
