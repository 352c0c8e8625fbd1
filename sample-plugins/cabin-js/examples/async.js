// The cabin provider, built without `--sync`: with the component model's async in it, which this host refuses.

export { execution, lifecycle } from "../provider.js";
