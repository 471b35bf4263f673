#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::function("signed_config_message")(data));
