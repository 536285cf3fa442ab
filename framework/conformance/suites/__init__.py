"""One module for each plugin kind, named like it: `scheduling_policy` has the class
`SchedulingPolicyConformance`. A kind gets a suite by a file in this folder."""
