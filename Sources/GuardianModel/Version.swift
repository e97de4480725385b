/// The version that every program of the package prints.
package let guardianVersion = "0.1.0"
