//! HTTP/3: responses equal the responses of the other versions, incomplete ones never look complete, and other versions announce it.

mod client;
mod features;
mod idle;
mod paths;
mod raw;
mod same;
mod stop;
