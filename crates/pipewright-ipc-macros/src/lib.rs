//! The attribute `service` of `pipewright-ipc`, which documents it: its expansion is code of that crate.
//!
//! | file | contents |
//! |---|---|
//! | `parse.rs` | the trait, and the mistakes in it |
//! | `signature.rs` | the identity of a service |
//! | `worker.rs` | the code of the worker's side |
//! | `client.rs` | the code of the client |

#![forbid(unsafe_code)]

mod client;
mod parse;
mod signature;
mod worker;

use proc_macro::TokenStream;
use quote::quote;

/// Makes a trait a service: a worker implements the trait, and a generated client calls it in a pool of workers.
/// The module `pipewright_ipc::service` has the documentation.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = parse::Service::parse(arguments.into(), item.into()).map(|service| {
        let (service_trait, client) = (worker::expand(&service), client::expand(&service));
        quote! { #service_trait #client }
    });
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
