#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::function("hub_stats_answer")(data));
