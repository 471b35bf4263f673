mod history;
mod input_log;
