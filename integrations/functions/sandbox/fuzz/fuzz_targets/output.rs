#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dipc_sandbox::fuzzing::output(data));
